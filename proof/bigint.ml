(* Zarith under a name that the extracted modules do not hide *)
include Z
