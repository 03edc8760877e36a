(* Reads a network and a property in the checker's terms, and a certificate; prints what the extracted checker says.

     verifolio-proof-check TERMS < CERTIFICATE        (TERMS by terms.py, the certificate unpacked)

   The reader of terms is trusted, that of certificates is not: whatever it makes of a file, the theorem holds. *)

open Checker

exception Unreadable of string
exception Invalid of string

let unreadable text = raise (Unreadable text)

(* Terms: words in a fixed order, see terms.py *)

let words channel =
  let buffer = Scanf.Scanning.from_channel channel in
  fun () -> Scanf.bscanf buffer " %s" (fun w -> if w = "" then unreadable "terms: they end too early" else w)

let times n f = List.init n (fun _ -> f ())

let read_terms channel =
  let word = words channel in
  let int () = int_of_string (word ()) in
  let big () = Bigint.of_string (word ()) in
  let flag () = int () <> 0 in
  let numbers n = times n big in
  let fraction () = let n = big () in let d = big () in (n, d) in
  if word () <> "verifolio-terms-1" then unreadable "terms: of another version";
  let network = word () in
  let property = word () in
  let hashes = (network, property) in
  let weights () =
    let wexp = big () in
    let wbits = big () in
    let rows = int () in
    let columns = int () in
    let matrix () = times rows (fun () -> numbers columns) in
    let same = flag () in
    let wlow = matrix () in
    { wlow; whigh = (if same then wlow else matrix ()); wexp; wbits } in
  let node () =
    match word () with
    | "input" -> Input
    | "relu" -> Relu (int ())
    | "affine" ->
        let count = int () in
        let terms = times count (fun () -> let p = int () in (p, weights ())) in
        let exponent = big () in
        let size = int () in
        let low = numbers size in
        Affine (terms, low, numbers size, exponent)
    | other -> unreadable ("terms: no node " ^ other) in
  let sparse size =
    let dense = Array.make size (Bigint.zero, Bigint.one) in
    let count = int () in
    ignore (times count (fun () -> let i = int () in dense.(i) <- fraction ()));
    Array.to_list dense in
  let count = int () in
  let output = int () in
  let inputs = int () in
  let outputs = int () in
  let net = times count node in
  let row () =
    let strict = flag () in
    let rshift = big () in
    let lim = fraction () in
    let cin = sparse inputs in
    { cin; cout = sparse outputs; lim; strict; rshift } in
  let region () =
    let iscale = big () in
    let box_low = times inputs fraction in
    let box_high = times inputs fraction in
    let count = int () in
    { box_low; box_high; iscale; disjuncts = times count (fun () -> let rows = int () in times rows row) } in
  let regions = int () in
  (hashes, net, output, times regions region)

(* Certificates *)

let next_line () = try input_line stdin with End_of_file -> ""

let is_digit c = c >= '0' && c <= '9'

(* the end of a number of at most [most] digits, from [i] on *)
let number_end line most i =
  let j = ref i in
  while !j < String.length line && is_digit line.[!j] && !j - i < most do incr j done;
  if !j = i then unreadable "certificate: expected a number" else !j

let is line i c = i < String.length line && line.[i] = c

let slope c =
  let k = if is_digit c then Char.code c - 48 else if c >= 'A' && c <= 'Z' then Char.code c - 55
    else if c >= 'a' && c <= 'z' then Char.code c - 61 else unreadable "certificate: expected a slope" in
  Bigint.of_int (k * 32768 / 61)

let no_data = { slopes = []; moves = []; row_weights = [] }

(* [aSLOPES][;][bM,...][;][mM,...] *)
let data_of text =
  let n = String.length text in
  let i = ref 0 in
  let slopes = ref [] in
  if is text 0 'a' then begin
    incr i;
    while !i < n && text.[!i] <> ';' do
      slopes := slope text.[!i] :: !slopes; incr i
    done
  end;
  let list letter signed most =
    if is text !i letter then begin
      incr i;
      let rec go found =
        let from = !i in
        if signed && is text !i '-' then incr i;
        i := number_end text most !i;
        let found = Bigint.of_string (String.sub text from (!i - from)) :: found in
        if is text !i ',' then (incr i; go found) else List.rev found in
      go []
    end else [] in
  if is text !i ';' then incr i;
  let moves = list 'b' true 18 in
  if is text !i ';' then incr i;
  let row_weights = list 'm' false 9 in
  if !i <> n then unreadable "certificate: expected data of a leaf";
  { slopes = List.rev !slopes; moves; row_weights }

type piece = Closed of bool * leaf | Cut of bool * int * int * (Bigint.t * Bigint.t) option

let piece arguments line i =
  let star = is line i '*' in
  let i = if star then i + 1 else i in
  if is line i '.' then (Closed (star, no_data), i + 1)
  else if is line i '[' then begin
    let close = try String.index_from line i ']' with Not_found -> unreadable "certificate: expected ]" in
    if not (is line (close + 1) '.') then unreadable "certificate: expected a leaf";
    (Closed (star, data_of (String.sub line (i + 1) (close - i - 1))), close + 2)
  end else begin
    let neuron = is line i 'r' in
    let first = if neuron then i + 1 else i in
    let last = number_end line (if neuron then 5 else 8) first in
    let number a b = int_of_string (String.sub line a (b - a)) in
    let place, which, i =
      if not neuron then (0, number first last, last)
      else begin
        if not (is line last '.') then unreadable "certificate: expected a neuron";
        let stop = number_end line 8 (last + 1) in
        let f = number first last in
        if f >= Array.length arguments then unreadable "certificate: no such function";
        (arguments.(f), number (last + 1) stop, stop)
      end in
    let signed i most =
      let stop = number_end line most (if is line i '-' then i + 1 else i) in
      (Bigint.of_string (String.sub line i (stop - i)), stop) in
    let cut, i =
      if not (is line i '@') then ((if neuron then Some (Bigint.zero, Bigint.zero) else None), i)
      else begin
        let m, i = signed (i + 1) 18 in
        if is line i 'p' then let e, i = signed (i + 1) 3 in (Some (m, e), i) else (Some (m, Bigint.zero), i)
      end in
    if not (is line i '/') then unreadable "certificate: expected a split";
    (Cut (star, place, which, cut), i + 1)
  end

(* a tree begins on a line of its own and takes as many as it needs *)
let read_tree arguments =
  let line = ref (next_line ()) in
  let at = ref 0 in
  let rec node () =
    if !at >= String.length !line then begin
      if !line = "" then unreadable "certificate: a tree ends too early";
      line := next_line (); at := 0; node ()
    end else begin
      let found, next = piece arguments !line !at in
      at := next;
      match found with
      | Closed (star, data) -> Leaf (star, data)
      | Cut (star, z, j, cut) ->
          let first = node () in
          let second = node () in
          Split (star, z, j, cut, first, second)
    end in
  let tree = node () in
  if !at <> String.length !line then unreadable "certificate: more than a tree on its line";
  tree

let split_words line = String.split_on_char ' ' line

let read_certificate arguments (network, property) regions =
  let expect text = if next_line () <> text then raise (Invalid ("expected " ^ text)) in
  if next_line () <> "verifolio certificate 2" then unreadable "certificate: of another version";
  expect ("network " ^ network);
  expect ("property " ^ property);
  let bits = match split_words (next_line ()) with
    | ["bits"; b] when String.length b <= 2 && int_of_string b <= 40 -> Bigint.of_string b
    | _ -> unreadable "certificate: expected bits" in
  let rec claims line found =
    match split_words line with
    | "claims" :: f :: (_ :: _ as ends) when List.length ends <= 256 ->
        let f = int_of_string f in
        if f < 0 || f >= Array.length arguments then unreadable "certificate: no such function";
        let one e =
          let j = int_of_string (String.sub e 1 (String.length e - 1)) in
          match e.[0] with '>' -> (true, j) | '<' -> (false, j) | _ -> unreadable "certificate: a claim" in
        let ends = List.map (fun (side, j) -> ((side, j), read_tree arguments)) (List.map one ends) in
        claims (next_line ()) ({ claimed = arguments.(f); ends } :: found)
    | _ -> (List.rev found, line) in
  let rec trees line found =
    match split_words line with
    | "tree" :: (_ :: _ as ids) ->
        let ids = List.map int_of_string ids in
        let tree = read_tree arguments in
        trees (next_line ()) ((ids, tree) :: found)
    | _ -> (List.rev found, line) in
  let rec go k line =
    if k = regions then begin
      if line <> "end" || next_line () <> "" then unreadable "certificate: expected the end";
      []
    end else begin
      if line <> Printf.sprintf "region %d" k then raise (Invalid "a region is missing");
      let claim_list, line = claims (next_line ()) [] in
      let trees, line = trees line [] in
      { bits; claim_list; trees } :: go (k + 1) line
    end in
  go 0 (next_line ())

let () =
  let code, text =
    try
      let hashes, net, output, regions = read_terms (open_in Sys.argv.(1)) in
      let arguments = Array.of_list (List.filter_map (function Relu z -> Some z | _ -> None) net) in
      let certificates = read_certificate arguments hashes (List.length regions) in
      if check net output regions certificates then (0, "valid") else (5, "not valid")
    with
    | Unreadable text -> (2, "unreadable: " ^ text)
    | Invalid text -> (5, "not valid: " ^ text)
    | Failure text | Invalid_argument text | Sys_error text -> (2, "unreadable: " ^ text)
    | Bigint.Overflow -> (5, "not valid: a shift too far")
    | Stack_overflow | Out_of_memory -> (2, "unreadable: too large") in
  print_endline text;
  exit code
