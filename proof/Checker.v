(** The checker: claims, trees of splits, rows of properties; and the theorem that what it accepts is true. *)
From Coq Require Import Reals ZArith List Lia Lra Bool.
Require Import Dyadic Vector Network Bounds Model.
Import ListNotations.
Open Scope R_scope.
Local Opaque p2 ROW_BITS.

(** ** Properties *)

(** cin . x + cout . y <= lim, or < where strict; numbers are fractions. [rshift] scales a row to about 1. *)
Record row := { cin : list (Z * Z); cout : list (Z * Z); lim : Z * Z; strict : bool; rshift : Z }.
(** A box of inputs, and disjuncts, each a list of rows; [iscale] is the unit of the inputs. *)
Record region := { box_low : list (Z * Z); box_high : list (Z * Z); iscale : Z; disjuncts : list (list row) }.

Definition row_holds (x y : list R) (r : row) : Prop :=
  let v := dot (map rat (cin r)) x + dot (map rat (cout r)) y in
  if strict r then v < rat (lim r) else v <= rat (lim r).
Definition in_region (g : region) (x : list R) : Prop :=
  Forall2 (fun q v => rat q <= v) (box_low g) x /\ Forall2 (fun q v => v <= rat q) (box_high g) x.

(** What a counterexample is: values of all nodes, an input in the box of a region, all rows of a disjunct. *)
Definition counterexample (net : network) (out : nat) (g : region) (hs : list (list R)) : Prop :=
  trace net hs /\ in_region g (nth 0 hs []) /\
  exists d, In d (disjuncts g) /\ Forall (row_holds (nth 0 hs []) (nth out hs [])) d.

(** ** Certificates *)
Record leaf := { slopes : list Z; moves : list Z; row_weights : list Z }.
Inductive tree :=
| Leaf (star : bool) (data : leaf)
| Split (star : bool) (z j : nat) (cut : option (Z * Z)) (first second : tree).

(** ** Trees *)
Definition path := list (nat * nat * bool). (* splits of neurons, the last one first; whether on the right *)
Definition FARTHEST := (2 ^ 61)%Z.

Fixpoint nonempty (l u : list Z) : bool :=
  match l, u with x :: l, y :: u => (x <=? y)%Z && nonempty l u | _, _ => true end.
Definition alive (D : domain) : bool :=
  forallb (fun o => match o with None => true | Some (l, u) => nonempty l u end) D.

Lemma inbox_nonempty : forall s l u h, inbox s l u h -> nonempty l u = true.
Proof.
  induction l; destruct u, h; simpl; try tauto. intros [[L U] H]. apply andb_true_iff. split; [|eauto].
  apply Z.leb_le, le_IZR. pose proof (p2_pos (- s)). apply Rmult_le_reg_r with (p2 (- s)); lra.
Qed.

Lemma inside_alive : forall M D hs, inside M D hs -> alive D = true.
Proof.
  intros M D hs H. unfold alive. apply forallb_forall. intros o Ho.
  destruct (In_nth D o None Ho) as (i & _ & E). destruct o as [[l u]|]; [|reflexivity].
  destruct (H i l u E) as (m & _ & Hb). eapply inbox_nonempty, Hb.
Qed.

Fixpoint set (j : nat) (x : Z) (v : list Z) {struct v} : list Z :=
  match v, j with [], _ => [] | _ :: v, O => x :: v | y :: v, S j => y :: set j x v end.

Lemma inbox_set_high : forall s l u h j c, inbox s l u h -> nth j h 0 <= IZR c * p2 (- s) ->
  inbox s l (set j (Z.min (nth j u 0%Z) c) u) h.
Proof.
  induction l; destruct u, h; simpl; try (intros; tauto); intros j c [B H] C; destruct j; simpl in *.
  - split; [|assumption]. split; [apply B|].
    destruct (Z.min_spec z c) as [[_ ->]|[_ ->]]; [apply B | exact C].
  - split; [assumption|]. apply IHl; assumption.
Qed.

Lemma inbox_set_low : forall s l u h j c, inbox s l u h -> IZR c * p2 (- s) <= nth j h 0 ->
  inbox s (set j (Z.max (nth j l 0%Z) c) l) u h.
Proof.
  induction l; destruct u, h; simpl; try (intros; tauto); intros j c [B H] C; destruct j; simpl in *.
  - split; [|assumption]. split; [|apply B].
    destruct (Z.max_spec a c) as [[_ ->]|[_ ->]]; [exact C | apply B].
  - split; [assumption|]. apply IHl; assumption.
Qed.

Section walk.
Variables (M : model) (order : list (nat * mnode)) (before : list nat).
Variable margin : domain -> path -> leaf -> option Z.

Fixpoint narrow_all (zs : list nat) (D : domain) : option domain :=
  match zs with
  | [] => Some D
  | z :: zs => match narrow M order D z with None => None | Some D => narrow_all zs D end
  end.
Definition starred (star : bool) (D : domain) : option domain := if star then narrow_all before D else Some D.

(** The least margin of the leaves that may hold a point. *)
Fixpoint walk (t : tree) (D : domain) (p : path) : option Z :=
  match t with
  | Leaf star data =>
      match starred star D with
      | None => None
      | Some D => if alive D then margin D p data else Some FARTHEST
      end
  | Split star z j cut first second =>
      match starred star D with
      | None => None
      | Some D =>
          if alive D then
            match nth z D None, nth_error M z with
            | Some (l, u), Some m =>
                if (j <? length l)%nat then
                  let x := nth j l 0%Z in
                  let y := nth j u 0%Z in
                  let c := match cut with None => fshift (x + y) 1 | Some (k, e) => fshift k (e - sc m) end in
                  let p' side := match z with O => p | _ => (z, j, side) :: p end in
                  match walk first (put z (Some (l, set j (Z.min y c) u)) D) (p' false) with
                  | None => None
                  | Some a =>
                      match walk second (put z (Some (set j (Z.max x c) l, u)) D) (p' true) with
                      | None => None
                      | Some b => Some (Z.min a b)
                      end
                  end
                else None
            | _, _ => None
            end
          else Some FARTHEST
      end
  end.

Variables (hs : list (list R)) (Q : Z -> Prop).
Hypothesis (HM : valid M hs) (HO : in_order M order).
Hypothesis antitone : forall a b, (a <= b)%Z -> Q b -> Q a.
Hypothesis margin_ok : forall D p data m, inside M D hs -> margin D p data = Some m -> Q m.

Lemma narrow_all_ok : forall zs D D', inside M D hs -> narrow_all zs D = Some D' -> inside M D' hs.
Proof.
  induction zs; intros D D' HD; simpl.
  - intro E. injection E as <-. assumption.
  - destruct (narrow M order D a) as [D1|] eqn:E1; [|discriminate]. apply IHzs.
    eapply narrow_ok; eauto.
Qed.

Lemma starred_ok : forall star D D', inside M D hs -> starred star D = Some D' -> inside M D' hs.
Proof.
  intros [|] D D' HD; simpl; [apply narrow_all_ok; assumption|]. intro E. injection E as <-. assumption.
Qed.

Lemma walk_ok : forall t D p m, inside M D hs -> walk t D p = Some m -> Q m.
Proof.
  induction t as [star data | star z j cut first IHl second IHr]; intros D p m HD; simpl;
    destruct (starred star D) as [D1|] eqn:E1; try discriminate;
    pose proof (starred_ok _ _ _ HD E1) as H1; rewrite (inside_alive _ _ _ H1).
  - apply margin_ok. assumption.
  - destruct (nth z D1 None) as [[l u]|] eqn:Ed; [|discriminate].
    destruct (nth_error M z) as [mz|] eqn:Em; [|discriminate].
    destruct (j <? length l)%nat; [|discriminate].
    destruct (H1 z l u Ed) as (m' & Em' & Hb). rewrite Em in Em'. injection Em' as <-.
    set (c := match cut with None => _ | Some _ => _ end).
    destruct (walk first _ _) as [a|] eqn:Ea; [|discriminate].
    destruct (walk second _ _) as [b|] eqn:Eb; [|discriminate].
    intro E. injection E as <-.
    destruct (Rle_or_lt (nth j (nth z hs []) 0) (IZR c * p2 (- sc mz))) as [C|C].
    + apply (antitone _ a); [lia|]. eapply IHl; [|exact Ea].
      apply (inside_put M D1 hs z mz); auto. apply inbox_set_high; assumption.
    + apply (antitone _ b); [lia|]. eapply IHr; [|exact Eb].
      apply (inside_put M D1 hs z mz); auto. apply inbox_set_low; [assumption|lra].
Qed.
End walk.

(** ** What leaves state: choices, so nothing is proved about them *)
Fixpoint take_slopes (l u s : list Z) : option (list Z * list Z) :=
  match l, u with
  | x :: l, y :: u =>
      if (x <? 0)%Z && (0 <? y)%Z
      then match s with
           | [] => None
           | c :: s => match take_slopes l u s with None => None | Some (t, r) => Some (c :: t, r) end
           end
      else match take_slopes l u s with None => None | Some (t, r) => Some ((-1)%Z :: t, r) end
  | _, _ => Some ([], s)
  end.

Fixpoint slope_table (M : model) (zs : list nat) (s : list Z) (table : list (option (list Z))) : option (list (option (list Z))) :=
  match zs with
  | [] => match s with [] => Some table | _ => None end
  | z :: zs =>
      match nth_error M z with
      | None => None
      | Some m =>
          match take_slopes (lo m) (hi m) s with
          | None => None
          | Some (t, s) => slope_table M zs s (put z (Some t) table)
          end
      end
  end.

Fixpoint set_padded (j : nat) (x : Z) (v : list Z) : list Z :=
  match j with O => x :: tl v | S j => hd 0%Z v :: set_padded j x (tl v) end.

Fixpoint move_table (p : path) (amounts : list Z) (table : list (option (list Z))) : option (list (option (list Z))) :=
  match p, amounts with
  | [], [] => Some table
  | (z, j, side) :: p, k :: amounts =>
      let held := match nth z table None with None => [] | Some v => v end in
      move_table p amounts (put z (Some (set_padded j (if side then k else - k)%Z held)) table)
  | _, _ => None
  end.

Definition stated (M : model) (zs : list nat) (p : path) (data : leaf) : option choice :=
  match (match slopes data with [] => Some [] | s => slope_table M zs s [] end),
        (match moves data with [] => Some [] | m => move_table (rev p) m [] end) with
  | Some s, Some m => Some (choose s m)
  | _, _ => None
  end.

(** ** Rows *)
Definition tell (n : nat) (v : list Z) (w : Z) : start :=
  if (w =? 0)%Z && forallb (Z.eqb 0) v then [] else [(n, v, w, ROW_BITS)].

(** A row, or a sum of rows with weights: coefficients of outputs and inputs with their widths, limit, strictness. *)
Record bar := { bout : list Z; wout : Z; bin : list Z; win : Z; limit : Z; reach : bool }.

Definition round_all (k : Z) (qs : list (Z * Z)) : list Z := map (fun q => qfloor q k) qs.
Definition width_of (k : Z) (qs : list (Z * Z)) : Z :=
  if forallb (fun q => (qfloor q k =? qceil q k)%Z) qs then 0%Z else 1%Z.
Definition well_formed (qs : list (Z * Z)) : bool := forallb (fun q => (0 <? snd q)%Z) qs.

Definition bar_of (unit : Z) (r : row) : option bar :=
  if well_formed (cin r) && well_formed (cout r) && (0 <? snd (lim r))%Z then
    let k := (rshift r + ROW_BITS)%Z in
    Some {| bout := round_all k (cout r); wout := width_of k (cout r); bin := round_all k (cin r);
            win := width_of k (cin r); limit := qceil (lim r) (rshift r + unit); reach := strict r |}
  else None.

Definition scale_bar (k : Z) (b : bar) (c : bar) : bar :=
  {| bout := zaxpy k (bout b) (bout c); wout := k * wout b + wout c; bin := zaxpy k (bin b) (bin c);
     win := k * win b + win c; limit := k * limit b + limit c; reach := (reach b && (0 <? k)%Z) || reach c |}%Z.
Definition no_bar : bar := {| bout := []; wout := 0; bin := []; win := 0; limit := 0; reach := false |}%Z.

Fixpoint mix (ks : list Z) (bars : list bar) : option bar :=
  match ks, bars with
  | [], [] => Some no_bar
  | k :: ks, b :: bars => if (k <? 0)%Z then None else match mix ks bars with None => None | Some c => Some (scale_bar k b c) end
  | _, _ => None
  end.

Definition chosen_bars (ks : list Z) (bars : list bar) : option (list bar) :=
  match ks with
  | [] => Some bars
  | _ => if existsb (fun k => negb (k =? 0)%Z) ks then match mix ks bars with None => None | Some b => Some [b] end else None
  end.

Section goal.
Variables (M : model) (order : list (nat * mnode)) (out : nat) (unit : Z).

Fixpoint best (D : domain) (c : choice) (bars : list bar) (so_far : Z) : option Z :=
  match bars with
  | [] => Some so_far
  | b :: bars =>
      match sweep M order D c unit (tell out (bout b) (wout b) ++ tell 0 (bin b) (win b)) with
      | None => None
      | Some t => best D c bars (Z.max so_far (t - limit b + if reach b then 1 else 0)%Z)
      end
  end.

Fixpoint worst (D : domain) (c : choice) (ks : list Z) (goal : list (list bar)) : option Z :=
  match goal with
  | [] => Some FARTHEST
  | bars :: goal =>
      match chosen_bars ks bars with
      | None => None
      | Some bars =>
          match best D c bars (- FARTHEST), worst D c ks goal with
          | Some a, Some b => Some (Z.min a b)
          | _, _ => None
          end
      end
  end.

Definition goal_margin (zs : list nat) (goal : list (list bar)) (D : domain) (p : path) (data : leaf) : option Z :=
  match stated M zs p data with None => None | Some c => worst D c (row_weights data) goal end.
End goal.

(** ** Proofs about rows *)

(** The sum stays below its limit at a counterexample. *)
Definition bar_holds (unit : Z) (x y : list R) (b : bar) : Prop :=
  exists ax ay, enc ROW_BITS (bout b) (wout b) ay /\ enc ROW_BITS (bin b) (win b) ax /\ (0 <= wout b)%Z /\ (0 <= win b)%Z /\
    let v := dot ay y + dot ax x in
    if reach b then v < IZR (limit b) * p2 (- unit) else v <= IZR (limit b) * p2 (- unit).

Lemma zero_dot : forall e v x h, enc e v 0 x -> forallb (Z.eqb 0) v = true -> dot x h = 0.
Proof.
  intros e v x h H. revert h. induction H as [|z r v x Hz Hv IH]; intros h E; [reflexivity|].
  cbn [forallb] in E. apply andb_true_iff in E. destruct E as [E0 E]. apply Z.eqb_eq in E0. subst z.
  destruct h as [|y h]; [reflexivity|]. cbn [dot]. rewrite (IH h E). rewrite Z.add_0_r in Hz.
  assert (r = 0) by lra. subst. ring.
Qed.

Lemma tell_value : forall hs n v w x rest r, enc ROW_BITS v w x -> (0 <= w)%Z -> start_value hs rest r ->
  start_value hs (tell n v w ++ rest) (dot x (nth n hs []) + r).
Proof.
  intros hs n v w x rest r Hx W HS. unfold tell.
  destruct (Z.eqb_spec w 0) as [->|_]; simpl.
  - destruct (forallb (Z.eqb 0) v) eqn:E; simpl.
    + rewrite (zero_dot _ _ _ _ Hx E), Rplus_0_l. assumption.
    + constructor; assumption.
  - constructor; assumption.
Qed.

Lemma round_enc : forall k s qs, well_formed qs = true -> (k = s + ROW_BITS)%Z ->
  enc ROW_BITS (round_all k qs) (width_of k qs) (map (fun q => rat q * p2 s) qs).
Proof.
  intros k s qs WF ->. set (k := (s + ROW_BITS)%Z).
  assert (W : forall q, In q qs -> (qceil q k <= qfloor q k + width_of k qs)%Z).
  { intros q Hq. unfold width_of. destruct (forallb _ qs) eqn:E.
    - rewrite forallb_forall in E. specialize (E q Hq). apply Z.eqb_eq in E. lia.
    - unfold qceil, qfloor. destruct q as [n d]. simpl. unfold well_formed in WF. rewrite forallb_forall in WF.
      specialize (WF (n, d) Hq). simpl in WF. apply Z.ltb_lt in WF.
      destruct (0 <=? k)%Z eqn:Ek.
      + rewrite Z.mul_opp_l. pose proof (Z.div_lt_upper_bound (- (n * 2 ^ k)) d (- (n * 2 ^ k) / d + 1) WF).
        pose proof (Z.mul_div_le (n * 2 ^ k) d WF). pose proof (Z.mul_succ_div_gt (n * 2 ^ k) d WF).
        pose proof (Z.mul_div_le (- (n * 2 ^ k)) d WF). pose proof (Z.mul_succ_div_gt (- (n * 2 ^ k)) d WF). nia.
      + apply Z.leb_gt in Ek. assert (P : (0 < d * 2 ^ (- k))%Z) by (apply Z.mul_pos_pos; [lia | apply Z.pow_pos_nonneg; lia]).
        set (f := (d * 2 ^ (- k))%Z) in *.
        pose proof (Z.mul_div_le n f P). pose proof (Z.mul_succ_div_gt n f P).
        pose proof (Z.mul_div_le (- n) f P). pose proof (Z.mul_succ_div_gt (- n) f P). nia. }
  assert (S : p2 s = p2 k * p2 (- ROW_BITS)) by (rewrite <- p2_add; f_equal; unfold k; lia).
  assert (O := p2_opp k). set (w := width_of k qs) in *. clearbody w.
  unfold enc, round_all. revert W WF. induction qs as [|q qs IH]; intros W WF; simpl; constructor.
  - simpl in WF. apply andb_true_iff in WF. destruct WF as [D _]. apply Z.ltb_lt in D.
    pose proof (qfloor_le q k D) as L. pose proof (qceil_ge q k D) as U.
    pose proof (p2_pos k) as G. pose proof (p2_pos (- ROW_BITS)) as G'.
    specialize (W q (or_introl eq_refl)). apply IZR_le in W. rewrite S. split.
    + cbv beta. replace (IZR (qfloor q k) * p2 (- ROW_BITS)) with (IZR (qfloor q k) * (p2 k * p2 (- k)) * p2 (- ROW_BITS)) by (rewrite O; ring).
      replace (IZR (qfloor q k) * (p2 k * p2 (- k)) * p2 (- ROW_BITS)) with (IZR (qfloor q k) * p2 (- k) * (p2 k * p2 (- ROW_BITS))) by ring.
      apply Rmult_le_compat_r; nra.
    + apply Rle_trans with (IZR (qceil q k) * p2 (- k) * (p2 k * p2 (- ROW_BITS))).
      * apply Rmult_le_compat_r; nra.
      * replace (IZR (qceil q k) * p2 (- k) * (p2 k * p2 (- ROW_BITS))) with (IZR (qceil q k) * (p2 k * p2 (- k)) * p2 (- ROW_BITS)) by ring.
        rewrite O. apply Rmult_le_compat_r; lra.
  - simpl in WF. apply andb_true_iff in WF. apply IH; [|apply WF]. intros q' Hq'. apply W. right. assumption.
Qed.

Lemma dot_map_scale : forall s qs h, dot (map (fun q => rat q * p2 s) qs) h = p2 s * dot (map rat qs) h.
Proof. induction qs; destruct h; simpl; try rewrite IHqs; ring. Qed.

Lemma bar_of_ok : forall unit x y r b, row_holds x y r -> bar_of unit r = Some b -> bar_holds unit x y b.
Proof.
  intros unit x y r b H. unfold bar_of.
  destruct (well_formed (cin r)) eqn:W1; [|discriminate]. destruct (well_formed (cout r)) eqn:W2; [|discriminate].
  destruct (Z.ltb_spec 0 (snd (lim r))) as [D|]; [|discriminate]. simpl. intro E. injection E as <-.
  set (s := rshift r). exists (map (fun q => rat q * p2 s) (cin r)), (map (fun q => rat q * p2 s) (cout r)). simpl.
  assert (W : forall qs k, (0 <= width_of k qs)%Z) by (intros; unfold width_of; destruct (forallb _ _); lia).
  split; [|split; [|split; [|split]]]; auto using round_enc.
  rewrite !dot_map_scale. pose proof (p2_pos s) as G.
  pose proof (qceil_ge (lim r) (s + unit) D) as U. replace (- (s + unit))%Z with (- s + - unit)%Z in U by lia.
  rewrite p2_add in U. pose proof (p2_opp s) as O. pose proof (p2_pos (- unit)) as G'.
  assert (L : rat (lim r) * p2 s <= IZR (qceil (lim r) (s + unit)) * p2 (- unit)).
  { apply Rle_trans with (IZR (qceil (lim r) (s + unit)) * (p2 (- s) * p2 (- unit)) * p2 s).
    - apply Rmult_le_compat_r; lra.
    - replace (IZR (qceil (lim r) (s + unit)) * (p2 (- s) * p2 (- unit)) * p2 s)
        with (IZR (qceil (lim r) (s + unit)) * p2 (- unit) * (p2 s * p2 (- s))) by ring.
      rewrite O. lra. }
  unfold row_holds in H. cbv zeta in *. destruct (strict r).
  - assert (p2 s * dot (map rat (cout r)) y + p2 s * dot (map rat (cin r)) x < rat (lim r) * p2 s) by nra. lra.
  - assert (p2 s * dot (map rat (cout r)) y + p2 s * dot (map rat (cin r)) x <= rat (lim r) * p2 s) by nra. lra.
Qed.

Lemma enc_axpy : forall k v w x, enc ROW_BITS v w x -> (0 <= k)%Z -> (0 <= w)%Z -> forall v' w' x',
  enc ROW_BITS v' w' x' -> (0 <= w')%Z -> enc ROW_BITS (zaxpy k v v') (k * w + w') (vadd (map (Rmult (IZR k)) x) x').
Proof.
  intros k v w x H K W v' w' x' H' W'.
  assert (A : encab (0 + ROW_BITS) v' 0 w' x').
  { eapply Forall2_impl; [|exact H']. intros z r B. rewrite Z.add_0_r. exact B. }
  pose proof (encab_axpy 0 ROW_BITS k w v x H W v' 0 w' x' A ltac:(lia)) as E.
  rewrite Z.min_r, Z.max_l in E by lia. rewrite Z.mul_0_r in E. simpl (- 0)%Z in E. rewrite p2_0, Rmult_1_r in E.
  eapply Forall2_impl; [|exact E]. cbn beta. intros z r B.
  rewrite !Z.add_0_l, Z.add_0_r in B. replace (z + (w' + w * k))%Z with (z + (k * w + w'))%Z in B by ring. exact B.
Qed.

Lemma scale_bar_ok : forall unit x y k b c, (0 <= k)%Z -> bar_holds unit x y b -> bar_holds unit x y c ->
  bar_holds unit x y (scale_bar k b c).
Proof.
  intros unit x y k b c K (ax & ay & A1 & A2 & A3 & A4 & A5) (cx & cy & C1 & C2 & C3 & C4 & C5).
  exists (vadd (map (Rmult (IZR k)) ax) cx), (vadd (map (Rmult (IZR k)) ay) cy). simpl.
  split; [|split; [|split; [|split]]]; try nia; try (apply enc_axpy; assumption).
  rewrite !dot_vadd_l, !dot_scale. rewrite plus_IZR, mult_IZR.
  assert (P : 0 <= IZR k) by (apply IZR_le; lia).
  set (g := p2 (- unit)) in *. cbv zeta in *.
  assert (B : dot ay y + dot ax x <= IZR (limit b) * g) by (destruct (reach b); lra).
  assert (C : dot cy y + dot cx x <= IZR (limit c) * g) by (destruct (reach c); lra).
  assert (kB : IZR k * (dot ay y + dot ax x) <= IZR k * (IZR (limit b) * g)) by (apply Rmult_le_compat_l; assumption).
  destruct (reach b); simpl.
  - destruct (Z.ltb_spec 0 k) as [K1|K1]; simpl.
    + assert (0 < IZR k) by (apply IZR_lt; lia).
      assert (IZR k * (dot ay y + dot ax x) < IZR k * (IZR (limit b) * g)) by (apply Rmult_lt_compat_l; assumption).
      lra.
    + destruct (reach c); lra.
  - destruct (reach c); lra.
Qed.

Lemma no_bar_ok : forall unit x y, bar_holds unit x y no_bar.
Proof.
  intros. exists [], []. simpl. split; [constructor|]. split; [constructor|]. split; [lia|]. split; [lia|]. lra.
Qed.

Lemma mix_ok : forall unit x y bars, Forall (bar_holds unit x y) bars -> forall ks b, mix ks bars = Some b -> bar_holds unit x y b.
Proof.
  intros unit x y bars H. induction H as [|b bars Hb HB IH]; intros ks c E; destruct ks as [|k ks]; simpl in E; try discriminate.
  - injection E as <-. apply no_bar_ok.
  - destruct (Z.ltb_spec k 0); [discriminate|]. destruct (mix ks bars) as [c'|] eqn:Ec; [|discriminate].
    injection E as <-. apply scale_bar_ok; auto. apply (IH ks). assumption.
Qed.

Lemma chosen_ok : forall unit x y bars, Forall (bar_holds unit x y) bars -> forall ks bars', chosen_bars ks bars = Some bars' ->
  Forall (bar_holds unit x y) bars'.
Proof.
  intros unit x y bars H ks bars' E. unfold chosen_bars in E. destruct ks as [|k ks].
  - injection E as <-. assumption.
  - destruct (existsb _ _); [|discriminate]. destruct (mix _ _) as [b|] eqn:Eb; [|discriminate].
    injection E as <-. constructor; [|constructor]. eapply mix_ok; eauto.
Qed.

Lemma best_ok : forall M order out unit D c hs, valid M hs -> in_order M order -> inside M D hs -> forall bars,
  Forall (bar_holds unit (nth 0 hs []) (nth out hs [])) bars -> forall so_far m,
  best M order out unit D c bars so_far = Some m -> (so_far <= 0)%Z -> (m <= 0)%Z.
Proof.
  intros M order out unit D c hs HM HO HD bars H. induction H as [|b bars Hb HB IH]; intros so_far m E S; simpl in E.
  - injection E as <-. assumption.
  - destruct (sweep _ _ _ _ _ _) as [t|] eqn:Et; [|discriminate]. apply (IH _ _ E).
    destruct Hb as (ax & ay & H1 & H2 & H3 & H4 & H5).
    assert (SV : start_value hs (tell out (bout b) (wout b) ++ tell 0 (bin b) (win b))
                   (dot ay (nth out hs []) + (dot ax (nth 0 hs []) + 0))).
    { apply tell_value; auto. rewrite <- (app_nil_r (tell 0 _ _)). apply tell_value; auto. constructor. }
    pose proof (sweep_sound _ _ _ _ _ _ _ _ _ HM HD HO SV Et) as B. pose proof (p2_pos (- unit)) as G.
    cbv zeta in H5. apply Z.max_lub; [assumption|]. destruct (reach b).
    + assert (IZR t < IZR (limit b)) by (apply Rmult_lt_reg_r with (p2 (- unit)); lra).
      apply lt_IZR in H. lia.
    + assert (IZR t <= IZR (limit b)) by (apply Rmult_le_reg_r with (p2 (- unit)); lra).
      apply le_IZR in H. lia.
Qed.

Lemma worst_ok : forall M order out unit D c ks hs, valid M hs -> in_order M order -> inside M D hs -> forall goal,
  (exists bars, In bars goal /\ Forall (bar_holds unit (nth 0 hs []) (nth out hs [])) bars) -> forall m,
  worst M order out unit D c ks goal = Some m -> (m <= 0)%Z.
Proof.
  intros M order out unit D c ks hs HM HO HD. induction goal as [|bars goal IH]; intros (b & Hin & Hb) m E; simpl in E; [destruct Hin|].
  destruct (chosen_bars ks bars) as [bars'|] eqn:Ec; [|discriminate].
  destruct (best _ _ _ _ _ _ _ _) as [a|] eqn:Ea; [|discriminate].
  destruct (worst _ _ _ _ _ _ _ goal) as [w|] eqn:Ew; [|discriminate]. injection E as <-.
  destruct Hin as [->|Hin].
  - pose proof (best_ok _ _ _ _ _ _ _ HM HO HD _ (chosen_ok _ _ _ _ Hb _ _ Ec) _ _ Ea ltac:(unfold FARTHEST; lia)). lia.
  - specialize (IH (ex_intro _ b (conj Hin Hb)) w eq_refl). lia.
Qed.
