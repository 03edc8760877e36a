(** The checker as an OCaml program; integers are Zarith's, natural numbers (positions) machine integers. *)
From Coq Require Import ZArith List Extraction ExtrOcamlBasic ExtrOcamlNatInt.
Require Import Dyadic Vector Network Bounds Model Checker Soundness.

Extract Inductive positive => "Bigint.t"
  [ "(fun p -> Bigint.succ (Bigint.shift_left p 1))" "(fun p -> Bigint.shift_left p 1)" "Bigint.one" ]
  "(fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))".
Extract Inductive Z => "Bigint.t" [ "Bigint.zero" "" "Bigint.neg" ]
  "(fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))".
Extract Inlined Constant Z.add => "Bigint.add".
Extract Inlined Constant Z.sub => "Bigint.sub".
Extract Inlined Constant Z.mul => "Bigint.mul".
Extract Inlined Constant Z.opp => "Bigint.neg".
Extract Inlined Constant Z.abs => "Bigint.abs".
Extract Inlined Constant Z.min => "Bigint.min".
Extract Inlined Constant Z.max => "Bigint.max".
Extract Inlined Constant Z.eqb => "Bigint.equal".
Extract Inlined Constant Z.leb => "Bigint.leq".
Extract Inlined Constant Z.ltb => "Bigint.lt".
Extract Constant Z.compare =>
  "(fun x y -> let c = Bigint.compare x y in if c = 0 then Eq else if c < 0 then Lt else Gt)".
Extract Constant Z.log2 => "(fun x -> if Bigint.sign x <= 0 then Bigint.zero else Bigint.of_int (Bigint.numbits x - 1))".
(* floor; x / 0 is 0 in Coq *)
Extract Constant Z.div => "(fun x y -> if Bigint.sign y = 0 then Bigint.zero else Bigint.fdiv x y)".
Extract Constant Z.shiftr =>
  "(fun x r -> let k = Bigint.to_int r in if k >= 0 then Bigint.shift_right x k else Bigint.shift_left x (- k))".
Extract Constant Z.pow => "(fun x k -> if Bigint.sign k < 0 then Bigint.zero else Bigint.pow x (Bigint.to_int k))".
Extract Inlined Constant Z.of_nat => "Bigint.of_int".

Extraction "checker.ml" check.

(** What the theorem rests on. *)
Print Assumptions check_sound.
