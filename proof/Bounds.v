(** Lower bounds of rows by going back from them to the inputs, in integers; every choice of multipliers is sound. *)
From Coq Require Import Reals ZArith List Lia Lra Bool.
Require Import Dyadic Vector Network.
Import ListNotations.
Open Scope R_scope.

(** A node of a network over a region: its map with rounded weights, its unit 2^-[sc], its interval, the sum of what is
    below zero of its lower ends, and how many bits a coefficient may have. *)
Inductive kind :=
| KInput
| KAffine (terms : list (nat * linear)) (blow bhigh : list Z) (bexp : Z)
| KRelu (parent : nat).
Record mnode := { knd : kind; sc : Z; lo : list Z; hi : list Z; sum_below : Z; room : Z }.
Definition model := list mnode.

Definition computesK (hs : list (list R)) (k : kind) (h : list R) : Prop :=
  match k with
  | KInput => True
  | KAffine terms blow bhigh bexp => exists Ws b,
      Forall2 (fun t W => holds (snd t) W /\ (0 <= err (snd t))%Z) terms Ws /\ lowb bexp blow b /\ upb bexp bhigh b /\
      h = affine (combine (map fst terms) Ws) b hs
  | KRelu z => h = map relu (nth z hs [])
  end.
Definition valid_node (hs : list (list R)) (i : nat) (m : mnode) : Prop :=
  inbox (sc m) (lo m) (hi m) (nth i hs []) /\ sum_below m = below (lo m) /\ computesK hs (knd m) (nth i hs []).
Definition valid (M : model) (hs : list (list R)) : Prop :=
  forall i m, nth_error M i = Some m -> valid_node hs i m.

(** A part of the region: intervals of some nodes. *)
Definition domain := list (option (list Z * list Z)).
Definition inside (M : model) (D : domain) (hs : list (list R)) : Prop :=
  forall i l u, nth i D None = Some (l, u) -> exists m, nth_error M i = Some m /\ inbox (sc m) l u (nth i hs []).

(** Coefficients by node, each row with an exponent, and a constant in units of 2^-unit. *)
Record state := { rows : list (option (list Z * Z)); total : Z }.

Definition row_value (o : option (list Z * Z)) (h : list R) : R :=
  match o with None => 0 | Some (v, e) => dot (real e v) h end.
Fixpoint rows_value (rs : list (option (list Z * Z))) (hs : list (list R)) : R :=
  match rs with [] => 0 | o :: rs => row_value o (hd [] hs) + rows_value rs (tl hs) end.
Definition value (unit : Z) (s : state) (hs : list (list R)) : R := IZR (total s) * p2 (- unit) + rows_value (rows s) hs.

Fixpoint put {A} (n : nat) (o : option A) (rs : list (option A)) : list (option A) :=
  match n with O => o :: tl rs | S n => hd None rs :: put n o (tl rs) end.

Lemma nth_nil : forall {A} n (d : A), nth n [] d = d.
Proof. destruct n; reflexivity. Qed.

Lemma rows_value_put : forall n o rs hs,
  rows_value (put n o rs) hs = rows_value rs hs - row_value (nth n rs None) (nth n hs []) + row_value o (nth n hs []).
Proof.
  induction n; intros o rs hs.
  - destruct rs; destruct hs; simpl; ring.
  - destruct rs as [|r rs]; destruct hs as [|h hs]; simpl; rewrite IHn; try rewrite !nth_nil; simpl; ring.
Qed.

Definition grow (unit part e : Z) (s : state) : state :=
  {| rows := rows s; total := (total s + fshift part (e - unit))%Z |}.

Lemma grow_value : forall unit part e s hs, value unit (grow unit part e s) hs <= value unit s hs + IZR part * p2 (- e).
Proof.
  intros. unfold value, grow. simpl. pose proof (fshift_le part (e - unit) e) as L.
  replace (- (e - (e - unit)))%Z with (- unit)%Z in L by lia. rewrite plus_IZR. lra.
Qed.

Fixpoint largest (v : list Z) : Z := match v with [] => 0%Z | z :: v => Z.max (Z.abs z) (largest v) end.
Definition bit_length (z : Z) : Z := if (z <=? 0)%Z then 0%Z else (Z.log2 z + 1)%Z.

(** Coefficients in [v, v + w] 2^-e of node n join those that are there, and are rounded down to few bits. *)
Definition add (M : model) (unit : Z) (n : nat) (v : list Z) (w e : Z) (s : state) : option state :=
  match nth_error M n with
  | None => None
  | Some m =>
      let '(v, w, e) :=
        match nth n (rows s) None with
        | None => (v, w, e)
        | Some (v', e') =>
            let least := Z.min e e' in
            (zadd (vshift (e - least) v) (vshift (e' - least) v'),
             (rounded w (e - least) + rounded 0 (e' - least))%Z, least)
        end in
      let r := Z.max (bit_length (largest v) - room m) 0 in
      Some (grow unit (- (rounded w r * sum_below m)) (e - r + sc m)
              {| rows := put n (Some (vshift r v, (e - r)%Z)) (rows s); total := total s |})
  end.

Lemma dot_real_enc : forall e v, enc e v 0 (real e v).
Proof. exact enc_exact. Qed.

Lemma add_value : forall M hs, valid M hs -> forall unit n v w e s s' x,
  enc e v w x -> (0 <= w)%Z -> add M unit n v w e s = Some s' ->
  value unit s' hs <= value unit s hs + dot x (nth n hs []).
Proof.
  intros M hs HM unit n v w e s s' x Hx W. unfold add.
  destruct (nth_error M n) as [m|] eqn:Em; [|discriminate].
  destruct (HM n m Em) as (Hbox & Hbelow & _). apply inbox_lowb in Hbox.
  set (h := nth n hs []) in *.
  remember (match nth n (rows s) None with
        | None => (v, w, e)
        | Some (v', e') =>
            let least := Z.min e e' in
            (zadd (vshift (e - least) v) (vshift (e' - least) v'),
             (rounded w (e - least) + rounded 0 (e' - least))%Z, least)
        end) as merged eqn:Emerged.
  destruct merged as [[v1 w1] e1].
  assert (A : exists y, enc e1 v1 w1 y /\ (0 <= w1)%Z /\
              dot y h = dot x h + row_value (nth n (rows s) None) h).
  { destruct (nth n (rows s) None) as [[v' e']|]; inversion Emerged; subst.
    - exists (vadd x (real e' v')). split; [|split].
      + apply enc_zadd.
        * pose proof (enc_shift _ _ _ _ (e - Z.min e e') Hx) as S.
          replace (e - (e - Z.min e e'))%Z with (Z.min e e') in S by lia. exact S.
        * apply rounded_pos; assumption.
        * pose proof (enc_shift _ _ _ _ (e' - Z.min e e') (enc_exact e' v')) as S.
          replace (e' - (e' - Z.min e e'))%Z with (Z.min e e') in S by lia. exact S.
        * apply rounded_pos; lia.
      + pose proof (rounded_pos w (e - Z.min e e') W). pose proof (rounded_pos 0 (e' - Z.min e e')). lia.
      + rewrite dot_vadd_l. reflexivity.
    - exists x. split; [assumption|]. split; [assumption|]. simpl. ring. }
  destruct A as (y & Hy & W1 & Ey). intro E. injection E as <-.
  set (r := Z.max (bit_length (largest v1) - room m) 0).
  eapply Rle_trans; [apply grow_value|].
  pose proof (enc_shift _ _ _ _ r Hy) as Hs. pose proof (rounded_pos w1 r W1) as Wr.
  pose proof (enc_dot _ _ _ Hbox _ _ _ _ Hs Wr) as Hd.
  unfold value. simpl. rewrite rows_value_put. fold h. simpl row_value at 2.
  rewrite Hbelow, opp_IZR. lra.
Qed.

(** The input: the least value of a row over the box. *)
Fixpoint corner (l u a : list Z) : Z :=
  match l, u with
  | x :: l, y :: u => (Z.min (hd 0 a * x) (hd 0 a * y) + corner l u (tl a))%Z
  | _, _ => 0%Z
  end.

Lemma corner_le : forall s l u h, inbox s l u h -> forall e a,
  IZR (corner l u a) * p2 (- (e + s)) <= dot (real e a) h.
Proof.
  induction l as [|x l IH]; destruct u as [|y u], h as [|z h]; simpl inbox; try tauto; intros H e a.
  - simpl. rewrite dot_nil_r. lra.
  - destruct H as [[L U] H]. specialize (IH u h H e (tl a)).
    rewrite dot_hd, hd_real, tl_real. simpl corner. rewrite plus_IZR, Rmult_plus_distr_r.
    enough (IZR (Z.min (hd 0%Z a * x) (hd 0%Z a * y)) * p2 (- (e + s)) <= IZR (hd 0%Z a) * p2 (- e) * z) by lra.
    replace (- (e + s))%Z with (- e + - s)%Z by lia. rewrite p2_add.
    pose proof (p2_pos (- e)) as G. pose proof (p2_pos (- s)) as G'.
    set (k := hd 0%Z a) in *. set (g := p2 (- e)) in *. set (g' := p2 (- s)) in *.
    destruct (Z_le_gt_dec 0 k) as [K|K].
    + assert (0 <= IZR k) by (apply IZR_le; lia).
      apply Rle_trans with (IZR (k * x) * (g * g')).
      * apply Rmult_le_compat_r; [nra|]. apply IZR_le. lia.
      * rewrite mult_IZR. replace (IZR k * IZR x * (g * g')) with (IZR k * g * (IZR x * g')) by ring.
        apply Rmult_le_compat_l; nra.
    + assert (IZR k <= 0) by (apply IZR_le; lia).
      apply Rle_trans with (IZR (k * y) * (g * g')).
      * apply Rmult_le_compat_r; [nra|]. apply IZR_le. lia.
      * rewrite mult_IZR. replace (IZR k * IZR y * (g * g')) with (IZR k * g * (IZR y * g')) by ring.
        assert (0 <= - (IZR k * g)) by nra. nra.
Qed.

(** A ReLU: the least value of a relu(z) - d z over an interval, for every neuron. *)
Definition least (a d l u : Z) : Z :=
  Z.min (Z.min (a * Z.max l 0 - d * l) (a * Z.max u 0 - d * u)) 0.
Fixpoint leasts (l u a d : list Z) : Z :=
  match l, u with
  | x :: l, y :: u => (least (hd 0 a) (hd 0 d) x y + leasts l u (tl a) (tl d))%Z
  | _, _ => 0%Z
  end.

Lemma least_le : forall s a d l u z, IZR l * p2 (- s) <= z <= IZR u * p2 (- s) ->
  IZR (least a d l u) * p2 (- s) <= IZR a * relu z - IZR d * z.
Proof.
  intros s a d l u z [L U]. pose proof (p2_pos (- s)) as G. set (g := p2 (- s)) in *.
  unfold least, relu.
  set (m := Z.min (Z.min (a * Z.max l 0 - d * l) (a * Z.max u 0 - d * u)) 0).
  assert (M0 : IZR m <= 0) by (apply IZR_le; lia).
  assert (M1 : IZR m <= IZR a * IZR (Z.max l 0) - IZR d * IZR l)
    by (rewrite <- !mult_IZR, <- minus_IZR; apply IZR_le; lia).
  assert (M2 : IZR m <= IZR a * IZR (Z.max u 0) - IZR d * IZR u)
    by (rewrite <- !mult_IZR, <- minus_IZR; apply IZR_le; lia).
  assert (N : IZR m * g <= 0) by nra.
  destruct (Rle_or_lt 0 z) as [Z0|Z0].
  - rewrite Rmax_left by assumption.
    assert (0 <= IZR u) by nra. rewrite Z.max_l in M2 by (apply le_IZR; assumption).
    destruct (Rle_or_lt 0 (IZR a - IZR d)); [nra|].
    apply Rle_trans with ((IZR a - IZR d) * (IZR u * g)); nra.
  - rewrite Rmax_right by lra.
    assert (IZR l <= 0) by nra. rewrite Z.max_r in M1 by (apply le_IZR; assumption).
    simpl (IZR 0) in M1. destruct (Rle_or_lt 0 (IZR d)); [nra|].
    apply Rle_trans with (- IZR d * (IZR l * g)); nra.
Qed.

Lemma leasts_le : forall s l u h, inbox s l u h -> forall e a d,
  IZR (leasts l u a d) * p2 (- (e + s)) + dot (real e d) h <= dot (real e a) (map relu h).
Proof.
  induction l as [|x l IH]; destruct u as [|y u], h as [|z h]; simpl inbox; try tauto; intros H e a d.
  - simpl. rewrite !dot_nil_r. lra.
  - destruct H as [B H]. specialize (IH u h H e (tl a) (tl d)).
    simpl map. rewrite !dot_hd, !hd_real, !tl_real. simpl leasts. rewrite plus_IZR, Rmult_plus_distr_r.
    pose proof (least_le s (hd 0%Z a) (hd 0%Z d) x y z B) as Q.
    replace (- (e + s))%Z with (- e + - s)%Z in * by lia. rewrite p2_add in *.
    pose proof (p2_pos (- e)) as G. set (g := p2 (- e)) in *.
    assert (IZR (least (hd 0%Z a) (hd 0%Z d) x y) * (g * p2 (- s)) <= (IZR (hd 0%Z a) * relu z - IZR (hd 0%Z d) * z) * g) by nra.
    lra.
Qed.

(** The bias of an affine node. *)
Fixpoint biases (l u d : list Z) : Z :=
  match l, u with
  | x :: l, y :: u => (Z.max (hd 0 d) 0 * x + Z.min (hd 0 d) 0 * y + biases l u (tl d))%Z
  | _, _ => 0%Z
  end.

Lemma biases_le : forall s l b, lowb s l b -> forall u, upb s u b -> forall e d,
  IZR (biases l u d) * p2 (- (e + s)) <= dot (real e d) b.
Proof.
  intros s l b H. induction H as [|x z l b Hx Hl IH]; intros u U e d.
  - simpl. rewrite dot_nil_r. lra.
  - inversion U as [|y z' u' b' Hy Hu]; subst. specialize (IH u' Hu e (tl d)).
    rewrite dot_hd, hd_real, tl_real. simpl biases. rewrite !plus_IZR, !mult_IZR, !Rmult_plus_distr_r.
    replace (- (e + s))%Z with (- e + - s)%Z in * by lia. rewrite p2_add in *.
    pose proof (p2_pos (- e)) as G. pose proof (p2_pos (- s)) as G'.
    set (g := p2 (- e)) in *. set (g' := p2 (- s)) in *. set (k := hd 0%Z d) in *.
    enough (IZR (Z.max k 0) * IZR x * (g * g') + IZR (Z.min k 0) * IZR y * (g * g') <= IZR k * g * z) by lra.
    destruct (Z_le_gt_dec 0 k) as [K|K].
    + rewrite Z.max_l, Z.min_r by lia. assert (0 <= IZR k * g) by (assert (0 <= IZR k) by (apply IZR_le; lia); nra).
      simpl (IZR 0). nra.
    + rewrite Z.max_r, Z.min_l by lia. assert (0 <= - (IZR k * g)) by (assert (IZR k <= 0) by (apply IZR_le; lia); nra).
      simpl (IZR 0). nra.
Qed.

(** One node; [choose] picks the multipliers of ReLUs, and may pick anything. *)
Definition choice := nat -> Z -> list Z -> list Z -> list Z -> list Z.

Fixpoint add_terms (M : model) (unit e : Z) (d : list Z) (terms : list (nat * linear)) (s : state) : option state :=
  match terms with
  | [] => Some s
  | (p, l) :: terms =>
      let down := downs d in
      match add M unit p (map (fun z => z + err l * down)%Z (pull d (mat l))) (err l * ups d - err l * down) (e + exp l) s with
      | None => None
      | Some s => add_terms M unit e d terms s
      end
  end.

Definition step (M : model) (D : domain) (choose : choice) (unit : Z) (n : nat) (m : mnode) (s : state) : option state :=
  match nth n (rows s) None with
  | None => Some s
  | Some (a, e) =>
      let s := {| rows := put n None (rows s); total := total s |} in
      match knd m with
      | KInput =>
          match nth n D None with
          | None => None
          | Some (l, u) => Some (grow unit (corner l u a) (e + sc m) s)
          end
      | KRelu z =>
          match nth z D None, nth_error M z with
          | Some (l, u), Some mz =>
              let d := choose z e a l u in
              add M unit z d 0 e (grow unit (leasts l u a d) (e + sc mz) s)
          | _, _ => None
          end
      | KAffine terms blow bhigh bexp =>
          add_terms M unit e a terms (grow unit (biases blow bhigh a) (e + bexp) s)
      end
  end.

Lemma add_terms_value : forall M hs, valid M hs -> forall unit e d terms Ws,
  Forall2 (fun t W => holds (snd t) W /\ (0 <= err (snd t))%Z) terms Ws -> forall s s' b,
  add_terms M unit e d terms s = Some s' ->
  value unit s' hs + dot (real e d) b <= value unit s hs + dot (real e d) (affine (combine (map fst terms) Ws) b hs).
Proof.
  intros M hs HM unit e d terms Ws H. induction H as [|[p l] W terms Ws [HW P] Ht IH]; intros s s' b E.
  - simpl in E. injection E as <-. simpl. lra.
  - simpl in E. destruct (add M unit p _ _ _ s) as [s1|] eqn:E1; [|discriminate].
    specialize (IH s1 s' b E).
    change (affine (combine (map fst ((p, l) :: terms)) (W :: Ws)) b hs)
      with (vadd (apply W (nth p hs [])) (affine (combine (map fst terms) Ws) b hs)).
    rewrite dot_vadd_r.
    simpl in HW, P. pose proof (encab_enc _ _ _ _ _ (pull_enc l W HW P e d)) as N.
    pose proof (ups_pos d). pose proof (downs_neg d).
    assert (W0 : (0 <= err l * ups d - err l * downs d)%Z)
      by (pose proof (Z.mul_nonneg_nonneg _ _ P (ups_pos d)); pose proof (Z.mul_nonneg_nonpos _ _ P (downs_neg d)); lia).
    pose proof (add_value M hs HM _ _ _ _ _ _ _ _ N W0 E1) as A.
    rewrite pull_dot in A. lra.
Qed.

Lemma step_value : forall M D choose unit hs n m s s', valid M hs -> inside M D hs -> nth_error M n = Some m ->
  step M D choose unit n m s = Some s' -> value unit s' hs <= value unit s hs.
Proof.
  intros M D choose unit hs n m s s' HM HD Hm. unfold step.
  destruct (nth n (rows s) None) as [[a e]|] eqn:Er; [|intro E; injection E as <-; lra].
  set (s0 := {| rows := put n None (rows s); total := total s |}).
  assert (V0 : value unit s0 hs = value unit s hs - dot (real e a) (nth n hs [])).
  { unfold value, s0. simpl. rewrite rows_value_put, Er. simpl. ring. }
  destruct (HM n m Hm) as (_ & _ & Hc).
  destruct (knd m) as [|terms blow bhigh bexp|z]; simpl in Hc.
  - destruct (nth n D None) as [[l u]|] eqn:Ed; [|discriminate]. intro E. injection E as <-.
    eapply Rle_trans; [apply grow_value|].
    destruct (HD n l u Ed) as (m' & Em & Hbox). rewrite Hm in Em. injection Em as <-.
    pose proof (corner_le _ _ _ _ Hbox e a). lra.
  - destruct Hc as (Ws & b & Ht & Hl & Hu & Eh). intro E.
    pose proof (add_terms_value M hs HM unit e a terms Ws Ht _ _ b E) as A. rewrite <- Eh in A.
    pose proof (grow_value unit (biases blow bhigh a) (e + bexp) s0 hs) as G.
    pose proof (biases_le bexp blow b Hl bhigh Hu e a). lra.
  - destruct (nth z D None) as [[l u]|] eqn:Ed; [|discriminate].
    destruct (nth_error M z) as [mz|] eqn:Ez; [|discriminate]. intro E.
    set (d := choose z e a l u) in *.
    pose proof (add_value M hs HM _ _ _ _ _ _ _ _ (enc_exact e d) ltac:(lia) E) as A.
    pose proof (grow_value unit (leasts l u a d) (e + sc mz) s0 hs) as G.
    destruct (HD z l u Ed) as (m' & Em & Hbox). rewrite Ez in Em. injection Em as <-.
    pose proof (leasts_le _ _ _ _ Hbox e a d) as Q.
    rewrite Hc in V0. lra.
Qed.

(** From the last node to the first; no row may be left over. *)
Fixpoint back (M : model) (D : domain) (choose : choice) (unit : Z) (nodes : list (nat * mnode)) (s : state) : option state :=
  match nodes with
  | [] => Some s
  | (n, m) :: nodes => match step M D choose unit n m s with None => None | Some s => back M D choose unit nodes s end
  end.

Definition numbered (M : model) : list (nat * mnode) := rev (combine (seq 0 (length M)) M).
Definition start := list (nat * list Z * Z * Z). (* node, coefficients in [v, v + w] 2^-e *)

Fixpoint add_starts (M : model) (unit : Z) (starts : start) (s : state) : option state :=
  match starts with
  | [] => Some s
  | (n, v, w, e) :: starts => match add M unit n v w e s with None => None | Some s => add_starts M unit starts s end
  end.

Definition nothing (o : option (list Z * Z)) : bool := match o with None => true | _ => false end.

(** A lower bound of a row in units of 2^-unit. *)
Definition sweep (M : model) (order : list (nat * mnode)) (D : domain) (choose : choice) (unit : Z) (starts : start) : option Z :=
  match add_starts M unit starts {| rows := []; total := 0 |} with
  | None => None
  | Some s =>
      match back M D choose unit order s with
      | None => None
      | Some s => if forallb nothing (rows s) then Some (total s) else None
      end
  end.

Definition in_order (M : model) (order : list (nat * mnode)) : Prop :=
  Forall (fun p => nth_error M (fst p) = Some (snd p)) order.

Lemma numbered_ok : forall M, in_order M (numbered M).
Proof.
  intro M. unfold in_order, numbered. apply Forall_rev.
  assert (A : forall k L, Forall (fun p : nat * mnode => nth_error L (fst p - k) = Some (snd p) /\ (k <= fst p)%nat)
                            (combine (seq k (length L)) L)).
  { intros k L. revert k. induction L as [|m L IH]; intro k; simpl; constructor.
    - simpl. rewrite Nat.sub_diag. split; [reflexivity|lia].
    - specialize (IH (S k)). eapply Forall_impl; [|exact IH]. simpl. intros [i x] [H1 H2]. simpl in *.
      split; [|lia]. replace (i - k)%nat with (S (i - S k)) by lia. exact H1. }
  specialize (A 0%nat M). eapply Forall_impl; [|exact A]. simpl. intros [i x] [H _]. simpl in *.
  rewrite Nat.sub_0_r in H. exact H.
Qed.

Inductive start_value (hs : list (list R)) : start -> R -> Prop :=
| start_nil : start_value hs [] 0
| start_cons : forall n v w e x starts r, enc e v w x -> (0 <= w)%Z -> start_value hs starts r ->
    start_value hs ((n, v, w, e) :: starts) (dot x (nth n hs []) + r).

Theorem sweep_sound : forall M order D choose unit starts t hs r,
  valid M hs -> inside M D hs -> in_order M order -> start_value hs starts r ->
  sweep M order D choose unit starts = Some t -> IZR t * p2 (- unit) <= r.
Proof.
  intros M order D choose unit starts t hs r HM HD HO HS. unfold sweep.
  destruct (add_starts _ _ _ _) as [s|] eqn:E1; [|discriminate].
  destruct (back _ _ _ _ _ _) as [s'|] eqn:E2; [|discriminate].
  destruct (forallb nothing (rows s')) eqn:E3; [|discriminate]. intro E. injection E as <-.
  assert (A : forall s0 s1, add_starts M unit starts s0 = Some s1 -> value unit s1 hs <= value unit s0 hs + r).
  { clear - HS HM. induction HS as [|n v w e x starts r Hx W HS IH]; intros s0 s1 E; simpl in E.
    - injection E as <-. lra.
    - destruct (add M unit n v w e s0) as [s2|] eqn:E2; [|discriminate].
      specialize (IH s2 s1 E). pose proof (add_value M hs HM _ _ _ _ _ _ _ _ Hx W E2). lra. }
  specialize (A _ _ E1).
  assert (B : forall s0 s1, back M D choose unit order s0 = Some s1 -> value unit s1 hs <= value unit s0 hs).
  { clear - HM HD HO. induction HO as [|[n m] order Hn HO IH]; intros s0 s1 E; simpl in E.
    - injection E as <-. lra.
    - destruct (step M D choose unit n m s0) as [s2|] eqn:E2; [|discriminate].
      specialize (IH s2 s1 E). pose proof (step_value M D choose unit hs n m s0 s2 HM HD Hn E2). lra. }
  specialize (B _ _ E2).
  assert (C : rows_value (rows s') hs = 0).
  { clear - E3. revert hs. induction (rows s') as [|o rs IH]; intro hs; simpl in *; [reflexivity|].
    apply andb_true_iff in E3. destruct E3 as [E0 E3]. destruct o; [discriminate|].
    rewrite (IH E3). simpl. ring. }
  unfold value in *. simpl in A. rewrite C in B. lra.
Qed.
