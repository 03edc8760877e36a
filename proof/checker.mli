
val negb : bool -> bool

val fst : ('a1 * 'a2) -> 'a1

val snd : ('a1 * 'a2) -> 'a2

val length : 'a1 list -> int

val app : 'a1 list -> 'a1 list -> 'a1 list

type comparison =
| Eq
| Lt
| Gt

module Nat :
 sig
  val ltb : int -> int -> bool
 end

module Pos :
 sig
  val succ : Bigint.t -> Bigint.t

  val add : Bigint.t -> Bigint.t -> Bigint.t

  val add_carry : Bigint.t -> Bigint.t -> Bigint.t

  val pred_double : Bigint.t -> Bigint.t

  val mul : Bigint.t -> Bigint.t -> Bigint.t

  val iter : ('a1 -> 'a1) -> 'a1 -> Bigint.t -> 'a1

  val div2 : Bigint.t -> Bigint.t

  val div2_up : Bigint.t -> Bigint.t

  val size : Bigint.t -> Bigint.t

  val compare_cont : comparison -> Bigint.t -> Bigint.t -> comparison

  val compare : Bigint.t -> Bigint.t -> comparison

  val eqb : Bigint.t -> Bigint.t -> bool

  val of_succ_nat : int -> Bigint.t
 end

module Z :
 sig
  val double : Bigint.t -> Bigint.t

  val succ_double : Bigint.t -> Bigint.t

  val pred_double : Bigint.t -> Bigint.t

  val pos_sub : Bigint.t -> Bigint.t -> Bigint.t

  val pow_pos : Bigint.t -> Bigint.t -> Bigint.t

  val pow : Bigint.t -> Bigint.t -> Bigint.t

  val compare : Bigint.t -> Bigint.t -> comparison

  val pos_div_eucl : Bigint.t -> Bigint.t -> Bigint.t * Bigint.t

  val div_eucl : Bigint.t -> Bigint.t -> Bigint.t * Bigint.t

  val div : Bigint.t -> Bigint.t -> Bigint.t

  val div2 : Bigint.t -> Bigint.t

  val log2 : Bigint.t -> Bigint.t

  val shiftl : Bigint.t -> Bigint.t -> Bigint.t

  val shiftr : Bigint.t -> Bigint.t -> Bigint.t
 end

val hd : 'a1 -> 'a1 list -> 'a1

val tl : 'a1 list -> 'a1 list

val nth : int -> 'a1 list -> 'a1 -> 'a1

val nth_error : 'a1 list -> int -> 'a1 option

val rev : 'a1 list -> 'a1 list

val map : ('a1 -> 'a2) -> 'a1 list -> 'a2 list

val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1

val existsb : ('a1 -> bool) -> 'a1 list -> bool

val forallb : ('a1 -> bool) -> 'a1 list -> bool

val filter : ('a1 -> bool) -> 'a1 list -> 'a1 list

val combine : 'a1 list -> 'a2 list -> ('a1 * 'a2) list

val seq : int -> int -> int list

val repeat : 'a1 -> int -> 'a1 list

val fshift : Bigint.t -> Bigint.t -> Bigint.t

val rounded : Bigint.t -> Bigint.t -> Bigint.t

val qfloor : (Bigint.t * Bigint.t) -> Bigint.t -> Bigint.t

val qceil : (Bigint.t * Bigint.t) -> Bigint.t -> Bigint.t

val zadd : Bigint.t list -> Bigint.t list -> Bigint.t list

val zaxpy : Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t list

val vshift : Bigint.t -> Bigint.t list -> Bigint.t list

val below : Bigint.t list -> Bigint.t

type weights = { wlow : Bigint.t list list; whigh : Bigint.t list list;
                 wexp : Bigint.t; wbits : Bigint.t }

type node =
| Input
| Affine of (int * weights) list * Bigint.t list * Bigint.t list * Bigint.t
| Relu of int

type network = node list

type linear = { mat : Bigint.t list list; err : Bigint.t; exp : Bigint.t;
                mass : Bigint.t }

val row_error : Bigint.t list -> Bigint.t list -> Bigint.t

val error : Bigint.t list list -> Bigint.t list list -> Bigint.t

val sum : Bigint.t list -> Bigint.t

val most : Bigint.t list -> Bigint.t

val mass_of : Bigint.t list list -> Bigint.t -> Bigint.t

val prepare : weights -> linear

val pull : Bigint.t list -> Bigint.t list list -> Bigint.t list

val ups : Bigint.t list -> Bigint.t

val downs : Bigint.t list -> Bigint.t

type kind =
| KInput
| KAffine of (int * linear) list * Bigint.t list * Bigint.t list * Bigint.t
| KRelu of int

type mnode = { knd : kind; sc : Bigint.t; lo : Bigint.t list;
               hi : Bigint.t list; sum_below : Bigint.t; room : Bigint.t }

type model = mnode list

type domain = (Bigint.t list * Bigint.t list) option list

type state = { rows : (Bigint.t list * Bigint.t) option list; total : Bigint.t }

val put : int -> 'a1 option -> 'a1 option list -> 'a1 option list

val grow : Bigint.t -> Bigint.t -> Bigint.t -> state -> state

val largest : Bigint.t list -> Bigint.t

val bit_length : Bigint.t -> Bigint.t

val add0 :
  model -> Bigint.t -> int -> Bigint.t list -> Bigint.t -> Bigint.t -> state
  -> state option

val corner : Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t

val least : Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t

val leasts :
  Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t

val biases : Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t

type choice =
  int -> Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t list ->
  Bigint.t list

val add_terms :
  model -> Bigint.t -> Bigint.t -> Bigint.t list -> (int * linear) list ->
  state -> state option

val step :
  model -> domain -> choice -> Bigint.t -> int -> mnode -> state -> state
  option

val back :
  model -> domain -> choice -> Bigint.t -> (int * mnode) list -> state ->
  state option

val numbered : model -> (int * mnode) list

type start = (((int * Bigint.t list) * Bigint.t) * Bigint.t) list

val add_starts : model -> Bigint.t -> start -> state -> state option

val nothing : (Bigint.t list * Bigint.t) option -> bool

val sweep :
  model -> (int * mnode) list -> domain -> choice -> Bigint.t -> start ->
  Bigint.t option

val rOW_BITS : Bigint.t

val gUARD : Bigint.t

val sLOPE_BITS : Bigint.t

val oNE : Bigint.t

val multiplier : Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t -> Bigint.t

val multipliers :
  Bigint.t list -> Bigint.t list -> Bigint.t list -> Bigint.t list ->
  Bigint.t list

val choose : Bigint.t list option list -> Bigint.t list option list -> choice

val default : choice

val room_of : Bigint.t list -> Bigint.t list -> Bigint.t option

val image : linear -> Bigint.t list -> Bigint.t list -> Bigint.t list

val image_high : linear -> Bigint.t list -> Bigint.t list -> Bigint.t list

val cshift : Bigint.t -> Bigint.t list -> Bigint.t list

val term_ends :
  model -> (int * linear) -> ((Bigint.t list * Bigint.t list) * Bigint.t)
  option

val all_ends :
  model -> (int * linear) list -> ((Bigint.t list * Bigint.t
  list) * Bigint.t) list option

val size_of : ((Bigint.t list * Bigint.t list) * Bigint.t) -> Bigint.t

val magnitude : Bigint.t list -> Bigint.t list -> Bigint.t -> Bigint.t

val sum_low :
  Bigint.t -> Bigint.t list -> ((Bigint.t list * Bigint.t list) * Bigint.t)
  list -> Bigint.t list

val sum_high :
  Bigint.t -> Bigint.t list -> ((Bigint.t list * Bigint.t list) * Bigint.t)
  list -> Bigint.t list

val make_node :
  kind -> Bigint.t -> Bigint.t list -> Bigint.t list -> Bigint.t -> mnode

val affine_node :
  model -> Bigint.t -> (int * linear) list -> Bigint.t list -> Bigint.t list
  -> Bigint.t -> mnode option

val relu_node : model -> int -> mnode option

val unit_row : int -> Bigint.t -> Bigint.t list

val unit_start : int -> int -> Bigint.t -> start

val neuron_bound :
  model -> (int * mnode) list -> domain -> int -> int -> Bigint.t -> Bigint.t
  -> Bigint.t option

val narrow_low :
  model -> (int * mnode) list -> domain -> int -> Bigint.t -> int -> Bigint.t
  list -> Bigint.t list -> Bigint.t list option

val narrow_high :
  model -> (int * mnode) list -> domain -> int -> Bigint.t -> int -> Bigint.t
  list -> Bigint.t list -> Bigint.t list option

val narrow : model -> (int * mnode) list -> domain -> int -> domain option

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

val fARTHEST : Bigint.t

val nonempty : Bigint.t list -> Bigint.t list -> bool

val alive : domain -> bool

val set : int -> Bigint.t -> Bigint.t list -> Bigint.t list

val narrow_all :
  model -> (int * mnode) list -> int list -> domain -> domain option

val starred :
  model -> (int * mnode) list -> int list -> bool -> domain -> domain option

val walk :
  model -> (int * mnode) list -> int list -> (domain -> path -> leaf ->
  Bigint.t option) -> tree -> domain -> path -> Bigint.t option

val take_slopes :
  Bigint.t list -> Bigint.t list -> Bigint.t list -> (Bigint.t
  list * Bigint.t list) option

val slope_table :
  model -> int list -> Bigint.t list -> Bigint.t list option list -> Bigint.t
  list option list option

val set_padded : int -> Bigint.t -> Bigint.t list -> Bigint.t list

val move_table :
  path -> Bigint.t list -> Bigint.t list option list -> Bigint.t list option
  list option

val stated : model -> int list -> path -> leaf -> choice option

val tell : int -> Bigint.t list -> Bigint.t -> start

type bar = { bout : Bigint.t list; wout : Bigint.t; bin : Bigint.t list;
             win : Bigint.t; limit : Bigint.t; reach : bool }

val round_all : Bigint.t -> (Bigint.t * Bigint.t) list -> Bigint.t list

val width_of : Bigint.t -> (Bigint.t * Bigint.t) list -> Bigint.t

val well_formed : (Bigint.t * Bigint.t) list -> bool

val bar_of : Bigint.t -> row -> bar option

val scale_bar : Bigint.t -> bar -> bar -> bar

val no_bar : bar

val mix : Bigint.t list -> bar list -> bar option

val chosen_bars : Bigint.t list -> bar list -> bar list option

val best :
  model -> (int * mnode) list -> int -> Bigint.t -> domain -> choice -> bar
  list -> Bigint.t -> Bigint.t option

val worst :
  model -> (int * mnode) list -> int -> Bigint.t -> domain -> choice ->
  Bigint.t list -> bar list list -> Bigint.t option

val goal_margin :
  model -> (int * mnode) list -> int -> Bigint.t -> int list -> bar list list
  -> domain -> path -> leaf -> Bigint.t option

type claims = { claimed : int; ends : ((bool * int) * tree) list }

type certificate = { bits : Bigint.t; claim_list : claims list;
                     trees : (int list * tree) list }

val rounded_node : node -> kind

val is_argument : kind list -> int -> bool

val arguments : kind list -> int list

val whole_from : int list -> int -> model -> domain

val whole : int list -> model -> domain

val with_ends : mnode -> Bigint.t list -> Bigint.t list -> mnode

val replace_node : int -> Bigint.t list -> Bigint.t list -> model -> model

val extend : int list -> Bigint.t -> kind -> model -> model option

val advance :
  int list -> Bigint.t -> int -> kind list -> model -> (kind list * model)
  option

val claim_margin :
  model -> (int * mnode) list -> int list -> int -> int -> Bigint.t ->
  Bigint.t -> domain -> path -> leaf -> Bigint.t option

val apply_ends :
  model -> (int * mnode) list -> int list -> int list -> domain -> int ->
  Bigint.t -> ((bool * int) * tree) list -> Bigint.t list -> Bigint.t list ->
  (Bigint.t list * Bigint.t list) option

val run_claims :
  int list -> Bigint.t -> claims list -> kind list -> model -> (kind
  list * model) option

val bars_of : Bigint.t -> row list -> bar list option

val goal_of : Bigint.t -> row list list -> int list -> bar list list option

val run_trees :
  model -> (int * mnode) list -> int list -> int -> Bigint.t -> domain -> row
  list list -> (int list * tree) list -> int list option

val input_node : region -> mnode option

val check_region : kind list -> int -> region -> certificate -> bool

val prepare_network : network -> kind list

val check : network -> int -> region list -> certificate list -> bool
