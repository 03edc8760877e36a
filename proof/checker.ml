
(** val negb : bool -> bool **)

let negb = function
| true -> false
| false -> true

(** val fst : ('a1 * 'a2) -> 'a1 **)

let fst = function
| (x, _) -> x

(** val snd : ('a1 * 'a2) -> 'a2 **)

let snd = function
| (_, y) -> y

(** val length : 'a1 list -> int **)

let rec length = function
| [] -> 0
| _ :: l' -> Stdlib.Int.succ (length l')

(** val app : 'a1 list -> 'a1 list -> 'a1 list **)

let rec app l m =
  match l with
  | [] -> m
  | a :: l1 -> a :: (app l1 m)

type comparison =
| Eq
| Lt
| Gt

module Nat =
 struct
  (** val ltb : int -> int -> bool **)

  let ltb n m =
    (<=) (Stdlib.Int.succ n) m
 end

module Pos =
 struct
  (** val succ : Bigint.t -> Bigint.t **)

  let rec succ x =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p -> (fun p -> Bigint.shift_left p 1) (succ p))
      (fun p -> (fun p -> Bigint.succ (Bigint.shift_left p 1)) p)
      (fun _ -> (fun p -> Bigint.shift_left p 1) Bigint.one)
      x

  (** val add : Bigint.t -> Bigint.t -> Bigint.t **)

  let rec add x y =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.shift_left p 1) (add_carry p q))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
        (add p q))
        (fun _ -> (fun p -> Bigint.shift_left p 1) (succ p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
        (add p q))
        (fun q -> (fun p -> Bigint.shift_left p 1) (add p q))
        (fun _ -> (fun p -> Bigint.succ (Bigint.shift_left p 1)) p)
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.shift_left p 1) (succ q))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1)) q)
        (fun _ -> (fun p -> Bigint.shift_left p 1) Bigint.one)
        y)
      x

  (** val add_carry : Bigint.t -> Bigint.t -> Bigint.t **)

  and add_carry x y =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
        (add_carry p q))
        (fun q -> (fun p -> Bigint.shift_left p 1) (add_carry p q))
        (fun _ -> (fun p -> Bigint.succ (Bigint.shift_left p 1)) (succ p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.shift_left p 1) (add_carry p q))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
        (add p q))
        (fun _ -> (fun p -> Bigint.shift_left p 1) (succ p))
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
        (succ q))
        (fun q -> (fun p -> Bigint.shift_left p 1) (succ q))
        (fun _ -> (fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one)
        y)
      x

  (** val pred_double : Bigint.t -> Bigint.t **)

  let rec pred_double x =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
      ((fun p -> Bigint.shift_left p 1) p))
      (fun p -> (fun p -> Bigint.succ (Bigint.shift_left p 1))
      (pred_double p))
      (fun _ -> Bigint.one)
      x

  (** val mul : Bigint.t -> Bigint.t -> Bigint.t **)

  let rec mul x y =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p -> add y ((fun p -> Bigint.shift_left p 1) (mul p y)))
      (fun p -> (fun p -> Bigint.shift_left p 1) (mul p y))
      (fun _ -> y)
      x

  (** val iter : ('a1 -> 'a1) -> 'a1 -> Bigint.t -> 'a1 **)

  let rec iter f x n =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun n' -> f (iter f (iter f x n') n'))
      (fun n' -> iter f (iter f x n') n')
      (fun _ -> f x)
      n

  (** val div2 : Bigint.t -> Bigint.t **)

  let div2 p =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p0 -> p0)
      (fun p0 -> p0)
      (fun _ -> Bigint.one)
      p

  (** val div2_up : Bigint.t -> Bigint.t **)

  let div2_up p =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p0 -> succ p0)
      (fun p0 -> p0)
      (fun _ -> Bigint.one)
      p

  (** val size : Bigint.t -> Bigint.t **)

  let rec size p =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p0 -> succ (size p0))
      (fun p0 -> succ (size p0))
      (fun _ -> Bigint.one)
      p

  (** val compare_cont : comparison -> Bigint.t -> Bigint.t -> comparison **)

  let rec compare_cont r x y =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> compare_cont r p q)
        (fun q -> compare_cont Gt p q)
        (fun _ -> Gt)
        y)
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> compare_cont Lt p q)
        (fun q -> compare_cont r p q)
        (fun _ -> Gt)
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun _ -> Lt)
        (fun _ -> Lt)
        (fun _ -> r)
        y)
      x

  (** val compare : Bigint.t -> Bigint.t -> comparison **)

  let compare =
    compare_cont Eq

  (** val eqb : Bigint.t -> Bigint.t -> bool **)

  let rec eqb p q =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p0 ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q0 -> eqb p0 q0)
        (fun _ -> false)
        (fun _ -> false)
        q)
      (fun p0 ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun _ -> false)
        (fun q0 -> eqb p0 q0)
        (fun _ -> false)
        q)
      (fun _ ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun _ -> false)
        (fun _ -> false)
        (fun _ -> true)
        q)
      p

  (** val of_succ_nat : int -> Bigint.t **)

  let rec of_succ_nat n =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> Bigint.one)
      (fun x -> succ (of_succ_nat x))
      n
 end

module Z =
 struct
  (** val double : Bigint.t -> Bigint.t **)

  let double x =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> Bigint.zero)
      (fun p -> ((fun p -> Bigint.shift_left p 1) p))
      (fun p -> Bigint.neg ((fun p -> Bigint.shift_left p 1) p))
      x

  (** val succ_double : Bigint.t -> Bigint.t **)

  let succ_double x =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> Bigint.one)
      (fun p -> ((fun p -> Bigint.succ (Bigint.shift_left p 1)) p))
      (fun p -> Bigint.neg (Pos.pred_double p))
      x

  (** val pred_double : Bigint.t -> Bigint.t **)

  let pred_double x =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> Bigint.neg Bigint.one)
      (fun p -> (Pos.pred_double p))
      (fun p -> Bigint.neg ((fun p -> Bigint.succ (Bigint.shift_left p 1))
      p))
      x

  (** val pos_sub : Bigint.t -> Bigint.t -> Bigint.t **)

  let rec pos_sub x y =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> double (pos_sub p q))
        (fun q -> succ_double (pos_sub p q))
        (fun _ -> ((fun p -> Bigint.shift_left p 1) p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> pred_double (pos_sub p q))
        (fun q -> double (pos_sub p q))
        (fun _ -> (Pos.pred_double p))
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun q -> Bigint.neg ((fun p -> Bigint.shift_left p 1) q))
        (fun q -> Bigint.neg (Pos.pred_double q))
        (fun _ -> Bigint.zero)
        y)
      x

  (** val pow_pos : Bigint.t -> Bigint.t -> Bigint.t **)

  let pow_pos z0 =
    Pos.iter (Bigint.mul z0) Bigint.one

  (** val pow : Bigint.t -> Bigint.t -> Bigint.t **)

  let pow = (fun x k -> if Bigint.sign k < 0 then Bigint.zero else Bigint.pow x (Bigint.to_int k))

  (** val compare : Bigint.t -> Bigint.t -> comparison **)

  let compare = (fun x y -> let c = Bigint.compare x y in if c = 0 then Eq else if c < 0 then Lt else Gt)

  (** val pos_div_eucl : Bigint.t -> Bigint.t -> Bigint.t * Bigint.t **)

  let rec pos_div_eucl a b =
    (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
      (fun a' ->
      let (q, r) = pos_div_eucl a' b in
      let r' =
        Bigint.add
          (Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) r)
          Bigint.one
      in
      if Bigint.lt r' b
      then ((Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) q), r')
      else ((Bigint.add
              (Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) q)
              Bigint.one), (Bigint.sub r' b)))
      (fun a' ->
      let (q, r) = pos_div_eucl a' b in
      let r' = Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) r in
      if Bigint.lt r' b
      then ((Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) q), r')
      else ((Bigint.add
              (Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one) q)
              Bigint.one), (Bigint.sub r' b)))
      (fun _ ->
      if Bigint.leq ((fun p -> Bigint.shift_left p 1) Bigint.one) b
      then (Bigint.zero, Bigint.one)
      else (Bigint.one, Bigint.zero))
      a

  (** val div_eucl : Bigint.t -> Bigint.t -> Bigint.t * Bigint.t **)

  let div_eucl a b =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> (Bigint.zero, Bigint.zero))
      (fun a' ->
      (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
        (fun _ -> (Bigint.zero, a))
        (fun _ -> pos_div_eucl a' b)
        (fun b' ->
        let (q, r) = pos_div_eucl a' b' in
        ((fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
           (fun _ -> ((Bigint.neg q), Bigint.zero))
           (fun _ -> ((Bigint.neg (Bigint.add q Bigint.one)),
           (Bigint.add b r)))
           (fun _ -> ((Bigint.neg (Bigint.add q Bigint.one)),
           (Bigint.add b r)))
           r))
        b)
      (fun a' ->
      (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
        (fun _ -> (Bigint.zero, a))
        (fun _ ->
        let (q, r) = pos_div_eucl a' b in
        ((fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
           (fun _ -> ((Bigint.neg q), Bigint.zero))
           (fun _ -> ((Bigint.neg (Bigint.add q Bigint.one)),
           (Bigint.sub b r)))
           (fun _ -> ((Bigint.neg (Bigint.add q Bigint.one)),
           (Bigint.sub b r)))
           r))
        (fun b' -> let (q, r) = pos_div_eucl a' b' in (q, (Bigint.neg r)))
        b)
      a

  (** val div : Bigint.t -> Bigint.t -> Bigint.t **)

  let div = (fun x y -> if Bigint.sign y = 0 then Bigint.zero else Bigint.fdiv x y)

  (** val div2 : Bigint.t -> Bigint.t **)

  let div2 z0 =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> Bigint.zero)
      (fun p ->
      (fun f2p1 f2p f1 p -> if Bigint.equal p Bigint.one then f1 () else if Bigint.is_odd p then f2p1 (Bigint.shift_right p 1) else f2p (Bigint.shift_right p 1))
        (fun _ -> (Pos.div2 p))
        (fun _ -> (Pos.div2 p))
        (fun _ -> Bigint.zero)
        p)
      (fun p -> Bigint.neg (Pos.div2_up p))
      z0

  (** val log2 : Bigint.t -> Bigint.t **)

  let log2 = (fun x -> if Bigint.sign x <= 0 then Bigint.zero else Bigint.of_int (Bigint.numbits x - 1))

  (** val shiftl : Bigint.t -> Bigint.t -> Bigint.t **)

  let shiftl a n =
    (fun f0 fp fn z -> let s = Bigint.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Bigint.neg z))
      (fun _ -> a)
      (fun p ->
      Pos.iter (Bigint.mul ((fun p -> Bigint.shift_left p 1) Bigint.one)) a p)
      (fun p -> Pos.iter div2 a p)
      n

  (** val shiftr : Bigint.t -> Bigint.t -> Bigint.t **)

  let shiftr = (fun x r -> let k = Bigint.to_int r in if k >= 0 then Bigint.shift_right x k else Bigint.shift_left x (- k))
 end

(** val hd : 'a1 -> 'a1 list -> 'a1 **)

let hd default0 = function
| [] -> default0
| x :: _ -> x

(** val tl : 'a1 list -> 'a1 list **)

let tl = function
| [] -> []
| _ :: m -> m

(** val nth : int -> 'a1 list -> 'a1 -> 'a1 **)

let rec nth n l default0 =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> match l with
              | [] -> default0
              | x :: _ -> x)
    (fun m -> match l with
              | [] -> default0
              | _ :: t -> nth m t default0)
    n

(** val nth_error : 'a1 list -> int -> 'a1 option **)

let rec nth_error l n =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> match l with
              | [] -> None
              | x :: _ -> Some x)
    (fun n0 -> match l with
               | [] -> None
               | _ :: l0 -> nth_error l0 n0)
    n

(** val rev : 'a1 list -> 'a1 list **)

let rec rev = function
| [] -> []
| x :: l' -> app (rev l') (x :: [])

(** val map : ('a1 -> 'a2) -> 'a1 list -> 'a2 list **)

let rec map f = function
| [] -> []
| a :: t -> (f a) :: (map f t)

(** val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1 **)

let rec fold_right f a0 = function
| [] -> a0
| b :: t -> f b (fold_right f a0 t)

(** val existsb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec existsb f = function
| [] -> false
| a :: l0 -> (||) (f a) (existsb f l0)

(** val forallb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec forallb f = function
| [] -> true
| a :: l0 -> (&&) (f a) (forallb f l0)

(** val filter : ('a1 -> bool) -> 'a1 list -> 'a1 list **)

let rec filter f = function
| [] -> []
| x :: l0 -> if f x then x :: (filter f l0) else filter f l0

(** val combine : 'a1 list -> 'a2 list -> ('a1 * 'a2) list **)

let rec combine l l' =
  match l with
  | [] -> []
  | x :: tl0 ->
    (match l' with
     | [] -> []
     | y :: tl' -> (x, y) :: (combine tl0 tl'))

(** val seq : int -> int -> int list **)

let rec seq start0 len =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> [])
    (fun len0 -> start0 :: (seq (Stdlib.Int.succ start0) len0))
    len

(** val repeat : 'a1 -> int -> 'a1 list **)

let rec repeat x n =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> [])
    (fun k -> x :: (repeat x k))
    n

(** val fshift : Bigint.t -> Bigint.t -> Bigint.t **)

let fshift =
  Z.shiftr

(** val rounded : Bigint.t -> Bigint.t -> Bigint.t **)

let rounded w r =
  Bigint.add (Bigint.neg (fshift (Bigint.neg w) r))
    (if Bigint.lt Bigint.zero r then Bigint.one else Bigint.zero)

(** val qfloor : (Bigint.t * Bigint.t) -> Bigint.t -> Bigint.t **)

let qfloor q k =
  if Bigint.leq Bigint.zero k
  then Z.div
         (Bigint.mul (fst q)
           (Z.pow ((fun p -> Bigint.shift_left p 1) Bigint.one) k)) (snd q)
  else Z.div (fst q)
         (Bigint.mul (snd q)
           (Z.pow ((fun p -> Bigint.shift_left p 1) Bigint.one)
             (Bigint.neg k)))

(** val qceil : (Bigint.t * Bigint.t) -> Bigint.t -> Bigint.t **)

let qceil q k =
  Bigint.neg (qfloor ((Bigint.neg (fst q)), (snd q)) k)

(** val zadd : Bigint.t list -> Bigint.t list -> Bigint.t list **)

let rec zadd a b =
  match a with
  | [] -> b
  | x :: a0 ->
    (match b with
     | [] -> a
     | y :: b0 -> (Bigint.add x y) :: (zadd a0 b0))

(** val zaxpy :
    Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t list **)

let rec zaxpy k r acc =
  match r with
  | [] -> acc
  | x :: r0 ->
    (match acc with
     | [] -> (Bigint.mul k x) :: (zaxpy k r0 [])
     | y :: acc0 -> (Bigint.add (Bigint.mul k x) y) :: (zaxpy k r0 acc0))

(** val vshift : Bigint.t -> Bigint.t list -> Bigint.t list **)

let vshift r v =
  if Bigint.equal r Bigint.zero then v else map (fun z0 -> fshift z0 r) v

(** val below : Bigint.t list -> Bigint.t **)

let rec below = function
| [] -> Bigint.zero
| z0 :: l0 -> Bigint.add (Bigint.max Bigint.zero (Bigint.neg z0)) (below l0)

type weights = { wlow : Bigint.t list list; whigh : Bigint.t list list;
                 wexp : Bigint.t; wbits : Bigint.t }

type node =
| Input
| Affine of (int * weights) list * Bigint.t list * Bigint.t list * Bigint.t
| Relu of int

type network = node list

type linear = { mat : Bigint.t list list; err : Bigint.t; exp : Bigint.t;
                mass : Bigint.t }

(** val row_error : Bigint.t list -> Bigint.t list -> Bigint.t **)

let rec row_error m c =
  match m with
  | [] -> Bigint.zero
  | x :: m0 ->
    (match c with
     | [] -> Bigint.zero
     | y :: c0 -> Bigint.max (Bigint.sub y x) (row_error m0 c0))

(** val error : Bigint.t list list -> Bigint.t list list -> Bigint.t **)

let rec error m c =
  match m with
  | [] -> Bigint.zero
  | x :: m0 ->
    (match c with
     | [] -> Bigint.zero
     | y :: c0 -> Bigint.max (row_error x y) (error m0 c0))

(** val sum : Bigint.t list -> Bigint.t **)

let rec sum = function
| [] -> Bigint.zero
| z0 :: v0 -> Bigint.add z0 (sum v0)

(** val most : Bigint.t list -> Bigint.t **)

let rec most = function
| [] -> Bigint.zero
| z0 :: v0 -> Bigint.max z0 (most v0)

(** val mass_of : Bigint.t list list -> Bigint.t -> Bigint.t **)

let mass_of m e =
  let sizes = map (map (fun z0 -> Bigint.add (Bigint.abs z0) e)) m in
  Bigint.max (most (map sum sizes)) (most (fold_right zadd [] sizes))

(** val prepare : weights -> linear **)

let prepare w =
  let r = Bigint.sub w.wexp w.wbits in
  let m = map (vshift r) w.wlow in
  let c = map (map (fun z0 -> Bigint.neg (fshift (Bigint.neg z0) r))) w.whigh
  in
  let e = error m c in
  { mat = m; err = e; exp = w.wbits; mass = (mass_of m e) }

(** val pull : Bigint.t list -> Bigint.t list list -> Bigint.t list **)

let rec pull d m =
  match d with
  | [] -> []
  | k :: d0 ->
    (match m with
     | [] -> []
     | r :: m0 ->
       if Bigint.equal k Bigint.zero
       then pull d0 m0
       else zaxpy k r (pull d0 m0))

(** val ups : Bigint.t list -> Bigint.t **)

let rec ups = function
| [] -> Bigint.zero
| k :: d0 -> Bigint.add (Bigint.max k Bigint.zero) (ups d0)

(** val downs : Bigint.t list -> Bigint.t **)

let rec downs = function
| [] -> Bigint.zero
| k :: d0 -> Bigint.add (Bigint.min k Bigint.zero) (downs d0)

type kind =
| KInput
| KAffine of (int * linear) list * Bigint.t list * Bigint.t list * Bigint.t
| KRelu of int

type mnode = { knd : kind; sc : Bigint.t; lo : Bigint.t list;
               hi : Bigint.t list; sum_below : Bigint.t; room : Bigint.t }

type model = mnode list

type domain = (Bigint.t list * Bigint.t list) option list

type state = { rows : (Bigint.t list * Bigint.t) option list; total : Bigint.t }

(** val put : int -> 'a1 option -> 'a1 option list -> 'a1 option list **)

let rec put n o rs =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> o :: (tl rs))
    (fun n0 -> (hd None rs) :: (put n0 o (tl rs)))
    n

(** val grow : Bigint.t -> Bigint.t -> Bigint.t -> state -> state **)

let grow unit0 part e s =
  { rows = s.rows; total =
    (Bigint.add s.total (fshift part (Bigint.sub e unit0))) }

(** val largest : Bigint.t list -> Bigint.t **)

let rec largest = function
| [] -> Bigint.zero
| z0 :: v0 -> Bigint.max (Bigint.abs z0) (largest v0)

(** val bit_length : Bigint.t -> Bigint.t **)

let bit_length z0 =
  if Bigint.leq z0 Bigint.zero
  then Bigint.zero
  else Bigint.add (Z.log2 z0) Bigint.one

(** val add0 :
    model -> Bigint.t -> int -> Bigint.t list -> Bigint.t -> Bigint.t ->
    state -> state option **)

let add0 m unit0 n v w e s =
  match nth_error m n with
  | Some m0 ->
    let (p, e0) =
      match nth n s.rows None with
      | Some p ->
        let (v', e') = p in
        let least0 = Bigint.min e e' in
        (((zadd (vshift (Bigint.sub e least0) v)
            (vshift (Bigint.sub e' least0) v')),
        (Bigint.add (rounded w (Bigint.sub e least0))
          (rounded Bigint.zero (Bigint.sub e' least0)))), least0)
      | None -> ((v, w), e)
    in
    let (v0, w0) = p in
    let r =
      Bigint.max (Bigint.sub (bit_length (largest v0)) m0.room) Bigint.zero
    in
    Some
    (grow unit0 (Bigint.neg (Bigint.mul (rounded w0 r) m0.sum_below))
      (Bigint.add (Bigint.sub e0 r) m0.sc) { rows =
      (put n (Some ((vshift r v0), (Bigint.sub e0 r))) s.rows); total =
      s.total })
  | None -> None

(** val corner :
    Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t **)

let rec corner l u a =
  match l with
  | [] -> Bigint.zero
  | x :: l0 ->
    (match u with
     | [] -> Bigint.zero
     | y :: u0 ->
       Bigint.add
         (Bigint.min (Bigint.mul (hd Bigint.zero a) x)
           (Bigint.mul (hd Bigint.zero a) y)) (corner l0 u0 (tl a)))

(** val least : Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t **)

let least a d l u =
  Bigint.min
    (Bigint.min
      (Bigint.sub (Bigint.mul a (Bigint.max l Bigint.zero)) (Bigint.mul d l))
      (Bigint.sub (Bigint.mul a (Bigint.max u Bigint.zero)) (Bigint.mul d u)))
    Bigint.zero

(** val leasts :
    Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t list ->
    Bigint.t **)

let rec leasts l u a d =
  match l with
  | [] -> Bigint.zero
  | x :: l0 ->
    (match u with
     | [] -> Bigint.zero
     | y :: u0 ->
       Bigint.add (least (hd Bigint.zero a) (hd Bigint.zero d) x y)
         (leasts l0 u0 (tl a) (tl d)))

(** val biases :
    Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t **)

let rec biases l u d =
  match l with
  | [] -> Bigint.zero
  | x :: l0 ->
    (match u with
     | [] -> Bigint.zero
     | y :: u0 ->
       Bigint.add
         (Bigint.add
           (Bigint.mul (Bigint.max (hd Bigint.zero d) Bigint.zero) x)
           (Bigint.mul (Bigint.min (hd Bigint.zero d) Bigint.zero) y))
         (biases l0 u0 (tl d)))

type choice =
  int -> Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t list ->
  Bigint.t list

(** val add_terms :
    model -> Bigint.t -> Bigint.t -> Bigint.t list -> (int * linear) list ->
    state -> state option **)

let rec add_terms m unit0 e d terms s =
  match terms with
  | [] -> Some s
  | p0 :: terms0 ->
    let (p, l) = p0 in
    let down = downs d in
    (match add0 m unit0 p
             (map (fun z0 -> Bigint.add z0 (Bigint.mul l.err down))
               (pull d l.mat))
             (Bigint.sub (Bigint.mul l.err (ups d)) (Bigint.mul l.err down))
             (Bigint.add e l.exp) s with
     | Some s0 -> add_terms m unit0 e d terms0 s0
     | None -> None)

(** val step :
    model -> domain -> choice -> Bigint.t -> int -> mnode -> state -> state
    option **)

let step m d choose0 unit0 n m0 s =
  match nth n s.rows None with
  | Some p ->
    let (a, e) = p in
    let s0 = { rows = (put n None s.rows); total = s.total } in
    (match m0.knd with
     | KInput ->
       (match nth n d None with
        | Some p0 ->
          let (l, u) = p0 in
          Some (grow unit0 (corner l u a) (Bigint.add e m0.sc) s0)
        | None -> None)
     | KAffine (terms, blow, bhigh, bexp) ->
       add_terms m unit0 e a terms
         (grow unit0 (biases blow bhigh a) (Bigint.add e bexp) s0)
     | KRelu z0 ->
       (match nth z0 d None with
        | Some p0 ->
          let (l, u) = p0 in
          (match nth_error m z0 with
           | Some mz ->
             let d0 = choose0 z0 e a l u in
             add0 m unit0 z0 d0 Bigint.zero e
               (grow unit0 (leasts l u a d0) (Bigint.add e mz.sc) s0)
           | None -> None)
        | None -> None))
  | None -> Some s

(** val back :
    model -> domain -> choice -> Bigint.t -> (int * mnode) list -> state ->
    state option **)

let rec back m d choose0 unit0 nodes s =
  match nodes with
  | [] -> Some s
  | p :: nodes0 ->
    let (n, m0) = p in
    (match step m d choose0 unit0 n m0 s with
     | Some s0 -> back m d choose0 unit0 nodes0 s0
     | None -> None)

(** val numbered : model -> (int * mnode) list **)

let numbered m =
  rev (combine (seq 0 (length m)) m)

type start = (((int * Bigint.t list) * Bigint.t) * Bigint.t) list

(** val add_starts : model -> Bigint.t -> start -> state -> state option **)

let rec add_starts m unit0 starts s =
  match starts with
  | [] -> Some s
  | p :: starts0 ->
    let (p0, e) = p in
    let (p1, w) = p0 in
    let (n, v) = p1 in
    (match add0 m unit0 n v w e s with
     | Some s0 -> add_starts m unit0 starts0 s0
     | None -> None)

(** val nothing : (Bigint.t list * Bigint.t) option -> bool **)

let nothing = function
| Some _ -> false
| None -> true

(** val sweep :
    model -> (int * mnode) list -> domain -> choice -> Bigint.t -> start ->
    Bigint.t option **)

let sweep m order d choose0 unit0 starts =
  match add_starts m unit0 starts { rows = []; total = Bigint.zero } with
  | Some s ->
    (match back m d choose0 unit0 order s with
     | Some s0 -> if forallb nothing s0.rows then Some s0.total else None
     | None -> None)
  | None -> None

(** val rOW_BITS : Bigint.t **)

let rOW_BITS =
  ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.shift_left p 1) Bigint.one))))

(** val gUARD : Bigint.t **)

let gUARD =
  ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one))

(** val sLOPE_BITS : Bigint.t **)

let sLOPE_BITS =
  ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one)))

(** val oNE : Bigint.t **)

let oNE =
  ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.shift_left p 1) Bigint.one)))))))))))))))

(** val multiplier :
    Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t **)

let multiplier slope a l u =
  let up = Bigint.max u Bigint.zero in
  let down = Bigint.max (Bigint.neg l) Bigint.zero in
  let below0 =
    if (&&) ((&&) (Bigint.leq Bigint.zero slope) (Bigint.lt l Bigint.zero))
         (Bigint.lt Bigint.zero u)
    then slope
    else if Bigint.lt down up then oNE else Bigint.zero
  in
  let above =
    Z.div (Bigint.mul up oNE) (Bigint.max (Bigint.add up down) Bigint.one)
  in
  fshift (Bigint.mul a (if Bigint.lt a Bigint.zero then above else below0))
    sLOPE_BITS

(** val multipliers :
    Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t list ->
    Bigint.t list **)

let rec multipliers slopes0 a l u =
  match a with
  | [] -> []
  | x :: a0 ->
    (match l with
     | [] -> []
     | y :: l0 ->
       (match u with
        | [] -> []
        | z0 :: u0 ->
          (multiplier (hd (Bigint.neg Bigint.one) slopes0) x y z0) :: 
            (multipliers (tl slopes0) a0 l0 u0)))

(** val choose :
    Bigint.t list option list -> Bigint.t list option list -> choice **)

let choose slopes0 moves0 z0 e a l u =
  let d =
    multipliers (match nth z0 slopes0 None with
                 | Some s -> s
                 | None -> []) a l u
  in
  (match nth z0 moves0 None with
   | Some m ->
     zadd d (map (fun k -> Bigint.neg (fshift k (Bigint.sub rOW_BITS e))) m)
   | None -> d)

(** val default : choice **)

let default =
  choose [] []

(** val room_of : Bigint.t list -> Bigint.t list -> Bigint.t option **)

let room_of l u =
  let r =
    Bigint.min (Bigint.add rOW_BITS Bigint.one)
      (Bigint.sub ((fun p -> Bigint.shift_left p 1)
        ((fun p -> Bigint.succ (Bigint.shift_left p 1))
        ((fun p -> Bigint.shift_left p 1)
        ((fun p -> Bigint.succ (Bigint.shift_left p 1))
        ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one)))))
        (bit_length
          (Bigint.mul
            (Bigint.add (Bigint.max (largest l) (largest u)) Bigint.one)
            (Bigint.of_int (length l)))))
  in
  if Bigint.lt r ((fun p -> Bigint.shift_left p 1)
       ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
       Bigint.one)))
  then None
  else Some r

(** val image : linear -> Bigint.t list -> Bigint.t list -> Bigint.t list **)

let image lin l u =
  let b = Bigint.mul lin.err (below l) in
  map (fun r -> Bigint.sub (corner l u r) b) lin.mat

(** val image_high :
    linear -> Bigint.t list -> Bigint.t list -> Bigint.t list **)

let image_high lin l u =
  map Bigint.neg (image lin (map Bigint.neg u) (map Bigint.neg l))

(** val cshift : Bigint.t -> Bigint.t list -> Bigint.t list **)

let cshift r v =
  map (fun z0 -> Bigint.neg (fshift (Bigint.neg z0) r)) v

(** val term_ends :
    model -> (int * linear) -> ((Bigint.t list * Bigint.t list) * Bigint.t)
    option **)

let term_ends m t =
  match nth_error m (fst t) with
  | Some m0 ->
    let r =
      Bigint.max
        (Bigint.sub
          (bit_length
            (Bigint.mul
              (Bigint.add (Bigint.max (largest m0.lo) (largest m0.hi))
                Bigint.one) (snd t).mass)) ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one))))))
        Bigint.zero
    in
    let l = vshift r m0.lo in
    let u = cshift r m0.hi in
    Some (((image (snd t) l u), (image_high (snd t) l u)),
    (Bigint.add (snd t).exp (Bigint.sub m0.sc r)))
  | None -> None

(** val all_ends :
    model -> (int * linear) list -> ((Bigint.t list * Bigint.t
    list) * Bigint.t) list option **)

let rec all_ends m = function
| [] -> Some []
| t :: terms0 ->
  (match term_ends m t with
   | Some e ->
     (match all_ends m terms0 with
      | Some es -> Some (e :: es)
      | None -> None)
   | None -> None)

(** val size_of : ((Bigint.t list * Bigint.t list) * Bigint.t) -> Bigint.t **)

let size_of = function
| (p, unit0) ->
  let (l, u) = p in
  Bigint.sub (bit_length (Bigint.max (largest l) (largest u))) unit0

(** val magnitude : Bigint.t list -> Bigint.t list -> Bigint.t -> Bigint.t **)

let magnitude l u e =
  let top = Bigint.max (largest l) (largest u) in
  if Bigint.equal top Bigint.zero
  then Bigint.zero
  else Bigint.max (Bigint.neg ((fun p -> Bigint.shift_left p 1)
         ((fun p -> Bigint.shift_left p 1)
         ((fun p -> Bigint.succ (Bigint.shift_left p 1))
         ((fun p -> Bigint.succ (Bigint.shift_left p 1))
         ((fun p -> Bigint.shift_left p 1)
         ((fun p -> Bigint.succ (Bigint.shift_left p 1))
         ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
         Bigint.one))))))))) (Bigint.sub (bit_length top) e)

(** val sum_low :
    Bigint.t -> Bigint.t list -> ((Bigint.t list * Bigint.t list) * Bigint.t)
    list -> Bigint.t list **)

let rec sum_low scale b = function
| [] -> b
| p :: ends1 ->
  let (p0, unit0) = p in
  let (l, _) = p0 in
  zadd (vshift (Bigint.sub unit0 scale) l) (sum_low scale b ends1)

(** val sum_high :
    Bigint.t -> Bigint.t list -> ((Bigint.t list * Bigint.t list) * Bigint.t)
    list -> Bigint.t list **)

let rec sum_high scale b = function
| [] -> b
| p :: ends1 ->
  let (p0, unit0) = p in
  let (_, u) = p0 in
  zadd (cshift (Bigint.sub unit0 scale) u) (sum_high scale b ends1)

(** val make_node :
    kind -> Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t -> mnode **)

let make_node k scale l u room0 =
  { knd = k; sc = scale; lo = l; hi = u; sum_below = (below l); room = room0 }

(** val affine_node :
    model -> Bigint.t -> (int * linear) list -> Bigint.t list -> Bigint.t
    list -> Bigint.t -> mnode option **)

let affine_node m bits0 terms bl bh be =
  match all_ends m terms with
  | Some ends0 ->
    let own = magnitude bl bh be in
    let top =
      fold_right Bigint.max
        (Bigint.max own (Bigint.neg ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.shift_left p 1) ((fun p -> Bigint.shift_left p 1)
          Bigint.one)))))))))) (map size_of ends0)
    in
    let scale =
      Bigint.sub (Bigint.sub bits0 top)
        (bit_length (Bigint.of_int (length ends0)))
    in
    let l = sum_low scale (vshift (Bigint.sub be scale) bl) ends0 in
    let u = sum_high scale (cshift (Bigint.sub be scale) bh) ends0 in
    let finer =
      Bigint.sub
        (Bigint.min ((fun p -> Bigint.shift_left p 1)
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.succ (Bigint.shift_left p 1))
          ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one))))
          (Bigint.sub
            (Bigint.sub ((fun p -> Bigint.succ (Bigint.shift_left p 1))
              ((fun p -> Bigint.shift_left p 1)
              ((fun p -> Bigint.succ (Bigint.shift_left p 1))
              ((fun p -> Bigint.succ (Bigint.shift_left p 1))
              ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one)))))
              rOW_BITS) (bit_length (Bigint.of_int (length l))))) own
    in
    (match room_of l u with
     | Some room0 ->
       Some
         (make_node (KAffine (terms, (vshift (Bigint.sub be finer) bl),
           (cshift (Bigint.sub be finer) bh), finer)) scale l u room0)
     | None -> None)
  | None -> None

(** val relu_node : model -> int -> mnode option **)

let relu_node m z0 =
  match nth_error m z0 with
  | Some m0 ->
    let l = map (fun x -> Bigint.max x Bigint.zero) m0.lo in
    let u = map (fun x -> Bigint.max x Bigint.zero) m0.hi in
    (match room_of l u with
     | Some r -> Some (make_node (KRelu z0) m0.sc l u (Bigint.min r m0.room))
     | None -> None)
  | None -> None

(** val unit_row : int -> Bigint.t -> Bigint.t list **)

let unit_row j k =
  app (repeat Bigint.zero j)
    ((Bigint.mul k
       (Z.pow ((fun p -> Bigint.shift_left p 1) Bigint.one) rOW_BITS)) :: [])

(** val unit_start : int -> int -> Bigint.t -> start **)

let unit_start z0 j k =
  (((z0, (unit_row j k)), Bigint.zero), rOW_BITS) :: []

(** val neuron_bound :
    model -> (int * mnode) list -> domain -> int -> int -> Bigint.t ->
    Bigint.t -> Bigint.t option **)

let neuron_bound m order d z0 j scale k =
  match sweep m order d default (Bigint.add scale gUARD) (unit_start z0 j k) with
  | Some t -> Some (fshift t gUARD)
  | None -> None

(** val narrow_low :
    model -> (int * mnode) list -> domain -> int -> Bigint.t -> int ->
    Bigint.t list -> Bigint.t list -> Bigint.t list option **)

let rec narrow_low m order d z0 scale j l u =
  match l with
  | [] -> (match u with
           | [] -> Some []
           | _ :: _ -> None)
  | x :: l0 ->
    (match u with
     | [] -> None
     | y :: u0 ->
       if (&&) (Bigint.lt x Bigint.zero) (Bigint.lt Bigint.zero y)
       then (match neuron_bound m order d z0 j scale Bigint.one with
             | Some b ->
               let x0 = Bigint.max x b in
               (match narrow_low m order d z0 scale (Stdlib.Int.succ j) l0 u0 with
                | Some l1 -> Some (x0 :: l1)
                | None -> None)
             | None -> None)
       else (match narrow_low m order d z0 scale (Stdlib.Int.succ j) l0 u0 with
             | Some l1 -> Some (x :: l1)
             | None -> None))

(** val narrow_high :
    model -> (int * mnode) list -> domain -> int -> Bigint.t -> int ->
    Bigint.t list -> Bigint.t list -> Bigint.t list option **)

let rec narrow_high m order d z0 scale j l u =
  match l with
  | [] -> (match u with
           | [] -> Some []
           | _ :: _ -> None)
  | x :: l0 ->
    (match u with
     | [] -> None
     | y :: u0 ->
       if (&&) (Bigint.lt x Bigint.zero) (Bigint.lt Bigint.zero y)
       then (match neuron_bound m order d z0 j scale (Bigint.neg Bigint.one) with
             | Some b ->
               let y0 = Bigint.min y (Bigint.neg b) in
               (match narrow_high m order d z0 scale (Stdlib.Int.succ j) l0 u0 with
                | Some u1 -> Some (y0 :: u1)
                | None -> None)
             | None -> None)
       else (match narrow_high m order d z0 scale (Stdlib.Int.succ j) l0 u0 with
             | Some u1 -> Some (y :: u1)
             | None -> None))

(** val narrow :
    model -> (int * mnode) list -> domain -> int -> domain option **)

let narrow m order d z0 =
  match nth z0 d None with
  | Some p ->
    let (l, u) = p in
    (match nth_error m z0 with
     | Some m0 ->
       (match narrow_low m order d z0 m0.sc 0 l u with
        | Some l0 ->
          (match narrow_high m order d z0 m0.sc 0 l0 u with
           | Some u0 -> Some (put z0 (Some (l0, u0)) d)
           | None -> None)
        | None -> None)
     | None -> None)
  | None -> None

type row = { cin : (Bigint.t * Bigint.t) list;
             cout : (Bigint.t * Bigint.t) list; lim : (Bigint.t * Bigint.t);
             strict : bool; rshift : Bigint.t }

type region = { box_low : (Bigint.t * Bigint.t) list;
                box_high : (Bigint.t * Bigint.t) list; iscale : Bigint.t;
                disjuncts : row list list }

type leaf = { slopes : Bigint.t list; moves : Bigint.t list;
              row_weights : Bigint.t list }

type tree =
| Leaf of bool * leaf
| Split of bool * int * int * (Bigint.t * Bigint.t) option * tree * tree

type path = ((int * int) * bool) list

(** val fARTHEST : Bigint.t **)

let fARTHEST =
  Z.pow ((fun p -> Bigint.shift_left p 1) Bigint.one)
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.shift_left p 1)
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.succ (Bigint.shift_left p 1))
    ((fun p -> Bigint.succ (Bigint.shift_left p 1)) Bigint.one)))))

(** val nonempty : Bigint.t list -> Bigint.t list -> bool **)

let rec nonempty l u =
  match l with
  | [] -> true
  | x :: l0 ->
    (match u with
     | [] -> true
     | y :: u0 -> (&&) (Bigint.leq x y) (nonempty l0 u0))

(** val alive : domain -> bool **)

let alive d =
  forallb (fun o ->
    match o with
    | Some y -> let (l, u) = y in nonempty l u
    | None -> true) d

(** val set : int -> Bigint.t -> Bigint.t list -> Bigint.t list **)

let rec set j x = function
| [] -> []
| y :: v0 ->
  ((fun fO fS n -> if n=0 then fO () else fS (n-1))
     (fun _ -> x :: v0)
     (fun j0 -> y :: (set j0 x v0))
     j)

(** val narrow_all :
    model -> (int * mnode) list -> int list -> domain -> domain option **)

let rec narrow_all m order zs d =
  match zs with
  | [] -> Some d
  | z0 :: zs0 ->
    (match narrow m order d z0 with
     | Some d0 -> narrow_all m order zs0 d0
     | None -> None)

(** val starred :
    model -> (int * mnode) list -> int list -> bool -> domain -> domain option **)

let starred m order before star d =
  if star then narrow_all m order before d else Some d

(** val walk :
    model -> (int * mnode) list -> int list -> (domain -> path -> leaf ->
    Bigint.t option) -> tree -> domain -> path -> Bigint.t option **)

let rec walk m order before margin t d p =
  match t with
  | Leaf (star, data) ->
    (match starred m order before star d with
     | Some d0 -> if alive d0 then margin d0 p data else Some fARTHEST
     | None -> None)
  | Split (star, z0, j, cut, first, second) ->
    (match starred m order before star d with
     | Some d0 ->
       if alive d0
       then (match nth z0 d0 None with
             | Some p0 ->
               let (l, u) = p0 in
               (match nth_error m z0 with
                | Some m0 ->
                  if Nat.ltb j (length l)
                  then let x = nth j l Bigint.zero in
                       let y = nth j u Bigint.zero in
                       let c =
                         match cut with
                         | Some p1 ->
                           let (k, e) = p1 in fshift k (Bigint.sub e m0.sc)
                         | None -> fshift (Bigint.add x y) Bigint.one
                       in
                       let p' = fun side ->
                         (fun fO fS n -> if n=0 then fO () else fS (n-1))
                           (fun _ -> p)
                           (fun _ -> ((z0, j), side) :: p)
                           z0
                       in
                       (match walk m order before margin first
                                (put z0 (Some (l,
                                  (set j (Bigint.min y c) u))) d0) (p' false) with
                        | Some a ->
                          (match walk m order before margin second
                                   (put z0 (Some ((set j (Bigint.max x c) l),
                                     u)) d0) (p' true) with
                           | Some b -> Some (Bigint.min a b)
                           | None -> None)
                        | None -> None)
                  else None
                | None -> None)
             | None -> None)
       else Some fARTHEST
     | None -> None)

(** val take_slopes :
    Bigint.t list -> Bigint.t list -> Bigint.t list -> (Bigint.t
    list * Bigint.t list) option **)

let rec take_slopes l u s =
  match l with
  | [] -> Some ([], s)
  | x :: l0 ->
    (match u with
     | [] -> Some ([], s)
     | y :: u0 ->
       if (&&) (Bigint.lt x Bigint.zero) (Bigint.lt Bigint.zero y)
       then (match s with
             | [] -> None
             | c :: s0 ->
               (match take_slopes l0 u0 s0 with
                | Some p -> let (t, r) = p in Some ((c :: t), r)
                | None -> None))
       else (match take_slopes l0 u0 s with
             | Some p ->
               let (t, r) = p in Some (((Bigint.neg Bigint.one) :: t), r)
             | None -> None))

(** val slope_table :
    model -> int list -> Bigint.t list -> Bigint.t list option list ->
    Bigint.t list option list option **)

let rec slope_table m zs s table =
  match zs with
  | [] -> (match s with
           | [] -> Some table
           | _ :: _ -> None)
  | z0 :: zs0 ->
    (match nth_error m z0 with
     | Some m0 ->
       (match take_slopes m0.lo m0.hi s with
        | Some p ->
          let (t, s0) = p in slope_table m zs0 s0 (put z0 (Some t) table)
        | None -> None)
     | None -> None)

(** val set_padded : int -> Bigint.t -> Bigint.t list -> Bigint.t list **)

let rec set_padded j x v =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> x :: (tl v))
    (fun j0 -> (hd Bigint.zero v) :: (set_padded j0 x (tl v)))
    j

(** val move_table :
    path -> Bigint.t list -> Bigint.t list option list -> Bigint.t list
    option list option **)

let rec move_table p amounts table =
  match p with
  | [] -> (match amounts with
           | [] -> Some table
           | _ :: _ -> None)
  | p0 :: p1 ->
    let (p2, side) = p0 in
    let (z0, j) = p2 in
    (match amounts with
     | [] -> None
     | k :: amounts0 ->
       let held = match nth z0 table None with
                  | Some v -> v
                  | None -> [] in
       move_table p1 amounts0
         (put z0 (Some
           (set_padded j (if side then k else Bigint.neg k) held)) table))

(** val stated : model -> int list -> path -> leaf -> choice option **)

let stated m zs p data =
  match match data.slopes with
        | [] -> Some []
        | z0 :: l -> slope_table m zs (z0 :: l) [] with
  | Some s ->
    (match match data.moves with
           | [] -> Some []
           | z0 :: l -> move_table (rev p) (z0 :: l) [] with
     | Some m0 -> Some (choose s m0)
     | None -> None)
  | None -> None

(** val tell : int -> Bigint.t list -> Bigint.t -> start **)

let tell n v w =
  if (&&) (Bigint.equal w Bigint.zero) (forallb (Bigint.equal Bigint.zero) v)
  then []
  else (((n, v), w), rOW_BITS) :: []

type bar = { bout : Bigint.t list; wout : Bigint.t; bin : Bigint.t list;
             win : Bigint.t; limit : Bigint.t; reach : bool }

(** val round_all :
    Bigint.t -> (Bigint.t * Bigint.t) list -> Bigint.t list **)

let round_all k qs =
  map (fun q -> qfloor q k) qs

(** val width_of : Bigint.t -> (Bigint.t * Bigint.t) list -> Bigint.t **)

let width_of k qs =
  if forallb (fun q -> Bigint.equal (qfloor q k) (qceil q k)) qs
  then Bigint.zero
  else Bigint.one

(** val well_formed : (Bigint.t * Bigint.t) list -> bool **)

let well_formed qs =
  forallb (fun q -> Bigint.lt Bigint.zero (snd q)) qs

(** val bar_of : Bigint.t -> row -> bar option **)

let bar_of unit0 r =
  if (&&) ((&&) (well_formed r.cin) (well_formed r.cout))
       (Bigint.lt Bigint.zero (snd r.lim))
  then let k = Bigint.add r.rshift rOW_BITS in
       Some { bout = (round_all k r.cout); wout = (width_of k r.cout); bin =
       (round_all k r.cin); win = (width_of k r.cin); limit =
       (qceil r.lim (Bigint.add r.rshift unit0)); reach = r.strict }
  else None

(** val scale_bar : Bigint.t -> bar -> bar -> bar **)

let scale_bar k b c =
  { bout = (zaxpy k b.bout c.bout); wout =
    (Bigint.add (Bigint.mul k b.wout) c.wout); bin = (zaxpy k b.bin c.bin);
    win = (Bigint.add (Bigint.mul k b.win) c.win); limit =
    (Bigint.add (Bigint.mul k b.limit) c.limit); reach =
    ((||) ((&&) b.reach (Bigint.lt Bigint.zero k)) c.reach) }

(** val no_bar : bar **)

let no_bar =
  { bout = []; wout = Bigint.zero; bin = []; win = Bigint.zero; limit =
    Bigint.zero; reach = false }

(** val mix : Bigint.t list -> bar list -> bar option **)

let rec mix ks bars =
  match ks with
  | [] -> (match bars with
           | [] -> Some no_bar
           | _ :: _ -> None)
  | k :: ks0 ->
    (match bars with
     | [] -> None
     | b :: bars0 ->
       if Bigint.lt k Bigint.zero
       then None
       else (match mix ks0 bars0 with
             | Some c -> Some (scale_bar k b c)
             | None -> None))

(** val chosen_bars : Bigint.t list -> bar list -> bar list option **)

let chosen_bars ks bars =
  match ks with
  | [] -> Some bars
  | _ :: _ ->
    if existsb (fun k -> negb (Bigint.equal k Bigint.zero)) ks
    then (match mix ks bars with
          | Some b -> Some (b :: [])
          | None -> None)
    else None

(** val best :
    model -> (int * mnode) list -> int -> Bigint.t -> domain -> choice -> bar
    list -> Bigint.t -> Bigint.t option **)

let rec best m order out unit0 d c bars so_far =
  match bars with
  | [] -> Some so_far
  | b :: bars0 ->
    (match sweep m order d c unit0
             (app (tell out b.bout b.wout) (tell 0 b.bin b.win)) with
     | Some t ->
       best m order out unit0 d c bars0
         (Bigint.max so_far
           (Bigint.add (Bigint.sub t b.limit)
             (if b.reach then Bigint.one else Bigint.zero)))
     | None -> None)

(** val worst :
    model -> (int * mnode) list -> int -> Bigint.t -> domain -> choice ->
    Bigint.t list -> bar list list -> Bigint.t option **)

let rec worst m order out unit0 d c ks = function
| [] -> Some fARTHEST
| bars :: goal0 ->
  (match chosen_bars ks bars with
   | Some bars0 ->
     (match best m order out unit0 d c bars0 (Bigint.neg fARTHEST) with
      | Some a ->
        (match worst m order out unit0 d c ks goal0 with
         | Some b -> Some (Bigint.min a b)
         | None -> None)
      | None -> None)
   | None -> None)

(** val goal_margin :
    model -> (int * mnode) list -> int -> Bigint.t -> int list -> bar list
    list -> domain -> path -> leaf -> Bigint.t option **)

let goal_margin m order out unit0 zs goal d p data =
  match stated m zs p data with
  | Some c -> worst m order out unit0 d c data.row_weights goal
  | None -> None

type claims = { claimed : int; ends : ((bool * int) * tree) list }

type certificate = { bits : Bigint.t; claim_list : claims list;
                     trees : (int list * tree) list }

(** val rounded_node : node -> kind **)

let rounded_node = function
| Input -> KInput
| Affine (terms, bl, bh, be) ->
  KAffine ((map (fun t -> ((fst t), (prepare (snd t)))) terms), bl, bh, be)
| Relu z0 -> KRelu z0

(** val is_argument : kind list -> int -> bool **)

let is_argument ks i =
  existsb (fun k -> match k with
                    | KRelu z0 -> (=) z0 i
                    | _ -> false) ks

(** val arguments : kind list -> int list **)

let arguments ks =
  filter (is_argument ks) (seq 0 (length ks))

(** val whole_from : int list -> int -> model -> domain **)

let rec whole_from before i = function
| [] -> []
| m0 :: m1 ->
  (if (||) ((=) i 0) (existsb ((=) i) before)
   then Some (m0.lo, m0.hi)
   else None) :: (whole_from before (Stdlib.Int.succ i) m1)

(** val whole : int list -> model -> domain **)

let whole before m =
  whole_from before 0 m

(** val with_ends : mnode -> Bigint.t list -> Bigint.t list -> mnode **)

let with_ends m l u =
  make_node m.knd m.sc l u m.room

(** val replace_node :
    int -> Bigint.t list -> Bigint.t list -> model -> model **)

let rec replace_node n l u = function
| [] -> []
| m0 :: m1 ->
  ((fun fO fS n -> if n=0 then fO () else fS (n-1))
     (fun _ -> (with_ends m0 l u) :: m1)
     (fun n0 -> m0 :: (replace_node n0 l u m1))
     n)

(** val extend : int list -> Bigint.t -> kind -> model -> model option **)

let extend before nbits k m =
  let n = length m in
  (match match k with
         | KInput -> None
         | KAffine (terms, bl, bh, be) -> affine_node m nbits terms bl bh be
         | KRelu z0 -> relu_node m z0 with
   | Some m0 ->
     let m1 = app m (m0 :: []) in
     if existsb ((=) n) before
     then (match narrow m1 (numbered m1) (whole before m1) n with
           | Some d ->
             (match nth n d None with
              | Some p -> let (l, u) = p in Some (replace_node n l u m1)
              | None -> None)
           | None -> None)
     else Some m1
   | None -> None)

(** val advance :
    int list -> Bigint.t -> int -> kind list -> model -> (kind list * model)
    option **)

let rec advance before nbits last rest m =
  match rest with
  | [] -> Some ([], m)
  | k :: rest' ->
    if Nat.ltb last (length m)
    then Some (rest, m)
    else (match extend before nbits k m with
          | Some m0 -> advance before nbits last rest' m0
          | None -> None)

(** val claim_margin :
    model -> (int * mnode) list -> int list -> int -> int -> Bigint.t ->
    Bigint.t -> domain -> path -> leaf -> Bigint.t option **)

let claim_margin m order zs z0 j scale k d p data =
  match data.row_weights with
  | [] ->
    (match stated m zs p data with
     | Some c ->
       sweep m order d c (Bigint.add scale gUARD) (unit_start z0 j k)
     | None -> None)
  | _ :: _ -> None

(** val apply_ends :
    model -> (int * mnode) list -> int list -> int list -> domain -> int ->
    Bigint.t -> ((bool * int) * tree) list -> Bigint.t list -> Bigint.t list
    -> (Bigint.t list * Bigint.t list) option **)

let rec apply_ends m order stars zs d z0 scale es l u =
  match es with
  | [] -> Some (l, u)
  | p :: es0 ->
    let (p0, t) = p in
    let (side, j) = p0 in
    if Nat.ltb j (length l)
    then (match walk m order stars
                  (claim_margin m order zs z0 j scale
                    (if side then Bigint.one else Bigint.neg Bigint.one)) t d
                  [] with
          | Some b ->
            let b0 = fshift b gUARD in
            if side
            then apply_ends m order stars zs d z0 scale es0
                   (set j (Bigint.max (nth j l Bigint.zero) b0) l) u
            else apply_ends m order stars zs d z0 scale es0 l
                   (set j (Bigint.min (nth j u Bigint.zero) (Bigint.neg b0))
                     u)
          | None -> None)
    else None

(** val run_claims :
    int list -> Bigint.t -> claims list -> kind list -> model -> (kind
    list * model) option **)

let rec run_claims before nbits cs rest m =
  match cs with
  | [] -> Some (rest, m)
  | c :: cs0 ->
    let z0 = c.claimed in
    (match advance before nbits z0 rest m with
     | Some p ->
       let (rest0, m0) = p in
       (match nth_error m0 z0 with
        | Some m1 ->
          let stars = filter (fun i -> Nat.ltb i (length m0)) before in
          let zs = filter (fun i -> Nat.ltb i z0) before in
          (match apply_ends m0 (numbered m0) stars zs (whole before m0) z0
                   m1.sc c.ends m1.lo m1.hi with
           | Some p0 ->
             let (l, u) = p0 in
             run_claims before nbits cs0 rest0 (replace_node z0 l u m0)
           | None -> None)
        | None -> None)
     | None -> None)

(** val bars_of : Bigint.t -> row list -> bar list option **)

let rec bars_of unit0 = function
| [] -> Some []
| r :: rows1 ->
  (match bar_of unit0 r with
   | Some b ->
     (match bars_of unit0 rows1 with
      | Some bs -> Some (b :: bs)
      | None -> None)
   | None -> None)

(** val goal_of :
    Bigint.t -> row list list -> int list -> bar list list option **)

let rec goal_of unit0 ds = function
| [] -> Some []
| i :: ids0 ->
  (match nth_error ds i with
   | Some rows0 ->
     (match bars_of unit0 rows0 with
      | Some b ->
        (match goal_of unit0 ds ids0 with
         | Some g -> Some (b :: g)
         | None -> None)
      | None -> None)
   | None -> None)

(** val run_trees :
    model -> (int * mnode) list -> int list -> int -> Bigint.t -> domain ->
    row list list -> (int list * tree) list -> int list option **)

let rec run_trees m order before out unit0 d ds = function
| [] -> Some []
| p :: ts0 ->
  let (ids, t) = p in
  (match goal_of unit0 ds ids with
   | Some goal ->
     (match walk m order before (goal_margin m order out unit0 before goal) t
              d [] with
      | Some m0 ->
        if Bigint.lt Bigint.zero m0
        then (match run_trees m order before out unit0 d ds ts0 with
              | Some done0 -> Some (app ids done0)
              | None -> None)
        else None
      | None -> None)
   | None -> None)

(** val input_node : region -> mnode option **)

let input_node g =
  if (&&) (well_formed g.box_low) (well_formed g.box_high)
  then let l = map (fun q -> qfloor q g.iscale) g.box_low in
       let u = map (fun q -> qceil q g.iscale) g.box_high in
       (match room_of l u with
        | Some r -> Some (make_node KInput g.iscale l u r)
        | None -> None)
  else None

(** val check_region : kind list -> int -> region -> certificate -> bool **)

let check_region ks out g c =
  let before = arguments ks in
  (match ks with
   | [] -> false
   | k :: rest ->
     (match k with
      | KInput ->
        (match input_node g with
         | Some m ->
           (match run_claims before c.bits c.claim_list rest (m :: []) with
            | Some p ->
              let (rest0, m0) = p in
              (match advance before c.bits (length ks) rest0 m0 with
               | Some p0 ->
                 let (_, m1) = p0 in
                 (match nth_error m1 out with
                  | Some mo ->
                    (match run_trees m1 (numbered m1) before out
                             (Bigint.add mo.sc gUARD) (whole before m1)
                             g.disjuncts c.trees with
                     | Some done0 ->
                       forallb (fun i -> existsb ((=) i) done0)
                         (seq 0 (length g.disjuncts))
                     | None -> false)
                  | None -> false)
               | None -> false)
            | None -> false)
         | None -> false)
      | _ -> false))

(** val prepare_network : network -> kind list **)

let prepare_network net =
  map rounded_node net

(** val check : network -> int -> region list -> certificate list -> bool **)

let check net out gs cs =
  let ks = prepare_network net in
  (&&) ((=) (length gs) (length cs))
    (forallb (fun p -> check_region ks out (fst p) (snd p)) (combine gs cs))
