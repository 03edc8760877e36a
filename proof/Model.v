(** A network over a region: units and intervals of all nodes, and the default rule that narrows them. *)
From Coq Require Import Reals ZArith List Lia Lra Bool.
Require Import Dyadic Vector Network Bounds.
Import ListNotations.
Open Scope R_scope.

Definition ROW_BITS := 22%Z.
Definition GUARD := 6%Z.
Definition SLOPE_BITS := 15%Z.
Definition ONE := 32768%Z.

(** ** Choices: none of these matters for soundness *)

(** The multiplier of a ReLU's argument: the upper line where a < 0, else the slope below, stated or by the default rule. *)
Definition multiplier (slope a l u : Z) : Z :=
  let up := Z.max u 0 in
  let down := Z.max (- l) 0 in
  let below := (if (0 <=? slope) && (l <? 0) && (0 <? u) then slope else if down <? up then ONE else 0)%Z in
  let above := (up * ONE / Z.max (up + down) 1)%Z in
  fshift (a * (if a <? 0 then above else below))%Z SLOPE_BITS.

Fixpoint multipliers (slopes a l u : list Z) : list Z :=
  match a, l, u with
  | x :: a, y :: l, z :: u => multiplier (hd (-1)%Z slopes) x y z :: multipliers (tl slopes) a l u
  | _, _, _ => []
  end.

(** [slopes] and [moves] by node. *)
Definition choose (slopes moves : list (option (list Z))) : choice := fun z e a l u =>
  let d := multipliers (match nth z slopes None with None => [] | Some s => s end) a l u in
  match nth z moves None with
  | None => d
  | Some m => zadd d (map (fun k => - fshift k (ROW_BITS - e))%Z m)
  end.

Definition default : choice := choose [] [].

(** Bits of coefficients; None if intervals are too wide for the checker in machine integers. *)
Definition room_of (l u : list Z) : option Z :=
  let r := Z.min (ROW_BITS + 1) (58 - bit_length ((Z.max (largest l) (largest u) + 1) * Z.of_nat (length l))) in
  if (r <? 8)%Z then None else Some r.

(** ** Intervals of nodes *)

Lemma inbox_opp : forall s l u h, inbox s l u h -> inbox s (map Z.opp u) (map Z.opp l) (map Ropp h).
Proof.
  induction l; destruct u, h; simpl; try tauto. intros [[L U] H]. rewrite !opp_IZR. split; [lra|auto].
Qed.

Lemma dot_opp_r : forall a h, dot a (map Ropp h) = - dot a h.
Proof. induction a; destruct h; simpl; try rewrite IHa; ring. Qed.

(** Lower ends of the outputs of a map, in units of 2^-(exp + s). *)
Definition image (lin : linear) (l u : list Z) : list Z :=
  let b := (err lin * below l)%Z in map (fun r => corner l u r - b)%Z (mat lin).

Lemma image_low : forall lin W, holds lin W -> (0 <= err lin)%Z -> forall s l u h, inbox s l u h ->
  lowb (exp lin + s) (image lin l u) (apply W h).
Proof.
  intros lin W H P s l u h Hb. unfold holds in H. unfold image, apply.
  induction H as [|r x m W Hr HW IH]; simpl; constructor; auto.
  pose proof (enc_dot s l h (inbox_lowb _ _ _ _ Hb) _ _ _ _ Hr P) as A.
  pose proof (corner_le _ _ _ _ Hb (exp lin) r) as B.
  rewrite minus_IZR. lra.
Qed.

Lemma lowb_opp : forall s l h, lowb s l (map Ropp h) -> upb s (map Z.opp l) h.
Proof.
  intros s l h. revert l. induction h as [|x h IH]; intros l H; inversion H; subst; simpl; constructor.
  - rewrite opp_IZR. lra.
  - apply IH. assumption.
Qed.

Lemma apply_opp : forall W h, apply W (map Ropp h) = map Ropp (apply W h).
Proof. intros. unfold apply. rewrite map_map. apply map_ext. intro. apply dot_opp_r. Qed.

Definition image_high (lin : linear) (l u : list Z) : list Z := map Z.opp (image lin (map Z.opp u) (map Z.opp l)).

Lemma image_high_ok : forall lin W, holds lin W -> (0 <= err lin)%Z -> forall s l u h, inbox s l u h ->
  upb (exp lin + s) (image_high lin l u) (apply W h).
Proof.
  intros lin W H P s l u h Hb. apply lowb_opp. rewrite <- apply_opp.
  apply image_low; auto. apply inbox_opp. assumption.
Qed.

Definition cshift (r : Z) (v : list Z) : list Z := map (fun z => - fshift (- z) r)%Z v.

Lemma lowb_shift : forall e v x r, lowb e v x -> lowb (e - r) (vshift r v) x.
Proof.
  intros. rewrite vshift_map. induction H; simpl; constructor; auto.
  eapply Rle_trans; [apply fshift_le|]. assumption.
Qed.

Lemma upb_shift : forall e v x r, upb e v x -> upb (e - r) (cshift r v) x.
Proof.
  intros. induction H; simpl; constructor; auto.
  pose proof (fshift_le (- x) r e) as L. rewrite opp_IZR in *. lra.
Qed.

Lemma lowb_zadd : forall s a x, lowb s a x -> forall b y, lowb s b y -> lowb s (zadd a b) (vadd x y).
Proof.
  intros s a x H. induction H as [|z r a x Hz Ha IH]; intros b y Hb; [exact Hb|].
  destruct Hb; simpl; constructor; auto.
  - rewrite plus_IZR. lra.
  - apply IH. assumption.
Qed.

Lemma upb_zadd : forall s a x, upb s a x -> forall b y, upb s b y -> upb s (zadd a b) (vadd x y).
Proof.
  intros s a x H. induction H as [|z r a x Hz Ha IH]; intros b y Hb; [exact Hb|].
  destruct Hb; simpl; constructor; auto.
  - rewrite plus_IZR. lra.
  - apply IH. assumption.
Qed.

Lemma both_inbox : forall s l h, lowb s l h -> forall u, upb s u h -> inbox s l u h.
Proof.
  intros s l h H. induction H; intros u U; inversion U; subst; simpl; auto.
Qed.

Lemma inbox_upb : forall s l u h, inbox s l u h -> upb s u h.
Proof. induction l; destruct u, h; simpl; try tauto; intros; constructor; try tauto. apply (IHl u). tauto. Qed.

Lemma inbox_shift : forall s l u h r, inbox s l u h -> inbox (s - r) (vshift r l) (cshift r u) h.
Proof.
  intros. apply both_inbox; [apply lowb_shift | apply upb_shift]; eauto using inbox_lowb, inbox_upb.
Qed.

(** The ends of one term of an affine node, and their exponent. *)
Definition term_ends (M : model) (t : nat * linear) : option (list Z * list Z * Z) :=
  match nth_error M (fst t) with
  | None => None
  | Some m =>
      let r := Z.max (bit_length ((Z.max (largest (lo m)) (largest (hi m)) + 1) * mass (snd t)) - 58) 0 in
      let l := vshift r (lo m) in
      let u := cshift r (hi m) in
      Some (image (snd t) l u, image_high (snd t) l u, (exp (snd t) + (sc m - r))%Z)
  end.

Lemma term_ends_ok : forall M hs, valid M hs -> forall t W l u e, holds (snd t) W -> (0 <= err (snd t))%Z ->
  term_ends M t = Some (l, u, e) -> lowb e l (apply W (nth (fst t) hs [])) /\ upb e u (apply W (nth (fst t) hs [])).
Proof.
  intros M hs HM [p lin] W l u e H P. unfold term_ends. simpl in *.
  destruct (nth_error M p) as [m|] eqn:E; [|discriminate]. intro F. injection F as <- <- <-.
  destruct (HM p m E) as (Hb & _). pose proof (fun r => inbox_shift _ _ _ _ r Hb) as S.
  split; [apply image_low | apply image_high_ok]; auto.
Qed.

Fixpoint all_ends (M : model) (terms : list (nat * linear)) : option (list (list Z * list Z * Z)) :=
  match terms with
  | [] => Some []
  | t :: terms =>
      match term_ends M t, all_ends M terms with Some e, Some es => Some (e :: es) | _, _ => None end
  end.

Definition size_of (e : list Z * list Z * Z) : Z :=
  let '(l, u, unit) := e in (bit_length (Z.max (largest l) (largest u)) - unit)%Z.
Definition magnitude (l u : list Z) (e : Z) : Z :=
  let top := Z.max (largest l) (largest u) in if (top =? 0)%Z then 0%Z else Z.max (-300) (bit_length top - e).

Fixpoint sum_low (scale : Z) (b : list Z) (ends : list (list Z * list Z * Z)) : list Z :=
  match ends with [] => b | (l, _, unit) :: ends => zadd (vshift (unit - scale) l) (sum_low scale b ends) end.
Fixpoint sum_high (scale : Z) (b : list Z) (ends : list (list Z * list Z * Z)) : list Z :=
  match ends with [] => b | (_, u, unit) :: ends => zadd (cshift (unit - scale) u) (sum_high scale b ends) end.

Definition make_node (k : kind) (scale : Z) (l u : list Z) (room : Z) : mnode :=
  {| knd := k; sc := scale; lo := l; hi := u; sum_below := below l; room := room |}.

Definition affine_node (M : model) (bits : Z) (terms : list (nat * linear)) (bl bh : list Z) (be : Z) : option mnode :=
  match all_ends M terms with
  | None => None
  | Some ends =>
      let own := magnitude bl bh be in
      let top := fold_right Z.max (Z.max own (-300)) (map size_of ends) in
      let scale := (bits - top - bit_length (Z.of_nat (length ends)))%Z in
      let l := sum_low scale (vshift (be - scale) bl) ends in
      let u := sum_high scale (cshift (be - scale) bh) ends in
      let finer := (Z.min 30 (61 - ROW_BITS - bit_length (Z.of_nat (length l))) - own)%Z in
      match room_of l u with
      | None => None
      | Some room =>
          Some (make_node (KAffine terms (vshift (be - finer) bl) (cshift (be - finer) bh) finer) scale l u room)
      end
  end.

Lemma all_ends_ok : forall M hs, valid M hs -> forall terms Ws,
  Forall2 (fun t W => holds (snd t) W /\ (0 <= err (snd t))%Z) terms Ws -> forall ends, all_ends M terms = Some ends ->
  forall scale bl bh b, lowb scale bl b -> upb scale bh b ->
  lowb scale (sum_low scale bl ends) (affine (combine (map fst terms) Ws) b hs) /\
  upb scale (sum_high scale bh ends) (affine (combine (map fst terms) Ws) b hs).
Proof.
  intros M hs HM terms Ws H. induction H as [|t W terms Ws [HW P] Ht IH]; intros ends E scale bl bh b Hl Hu.
  - simpl in E. injection E as <-. simpl. auto.
  - simpl in E. destruct (term_ends M t) as [[[l u] e]|] eqn:E1; [|discriminate].
    destruct (all_ends M terms) as [ends'|] eqn:E2; [|discriminate]. injection E as <-.
    destruct (term_ends_ok M hs HM t W l u e HW P E1) as [A B].
    destruct (IH ends' eq_refl scale bl bh b Hl Hu) as [C D].
    change (affine (combine (map fst (t :: terms)) (W :: Ws)) b hs)
      with (vadd (apply W (nth (fst t) hs [])) (affine (combine (map fst terms) Ws) b hs)).
    simpl sum_low. simpl sum_high. split.
    + apply lowb_zadd; [|exact C]. pose proof (lowb_shift _ _ _ (e - scale) A) as S.
      replace (e - (e - scale))%Z with scale in S by lia. exact S.
    + apply upb_zadd; [|exact D]. pose proof (upb_shift _ _ _ (e - scale) B) as S.
      replace (e - (e - scale))%Z with scale in S by lia. exact S.
Qed.

Lemma affine_node_ok : forall M hs n bits terms bl bh be m, valid M hs ->
  computesK hs (KAffine terms bl bh be) (nth n hs []) -> affine_node M bits terms bl bh be = Some m ->
  valid_node hs n m.
Proof.
  intros M hs n bits terms bl bh be m HM (Ws & b & Ht & Hl & Hu & Eh). unfold affine_node.
  destruct (all_ends M terms) as [ends|] eqn:E; [|discriminate].
  set (scale := (bits - _ - _)%Z). destruct (room_of _ _) as [room|]; [|discriminate]. intro F. injection F as <-.
  pose proof (lowb_shift _ _ _ (be - scale) Hl) as L. pose proof (upb_shift _ _ _ (be - scale) Hu) as U.
  replace (be - (be - scale))%Z with scale in * by lia.
  destruct (all_ends_ok M hs HM terms Ws Ht ends E scale _ _ b L U) as [A B].
  split; [|split].
  - simpl. rewrite Eh. apply both_inbox; assumption.
  - reflexivity.
  - simpl. set (finer := (Z.min _ _ - _)%Z). exists Ws, b. split; [assumption|].
    pose proof (lowb_shift _ _ _ (be - finer) Hl) as L'. pose proof (upb_shift _ _ _ (be - finer) Hu) as U'.
    replace (be - (be - finer))%Z with finer in * by lia. auto.
Qed.

Definition relu_node (M : model) (z : nat) : option mnode :=
  match nth_error M z with
  | None => None
  | Some m =>
      let l := map (fun x => Z.max x 0) (lo m) in
      let u := map (fun x => Z.max x 0) (hi m) in
      match room_of l u with
      | None => None
      | Some r => Some (make_node (KRelu z) (sc m) l u (Z.min r (room m)))
      end
  end.

Lemma relu_inbox : forall s l u h, inbox s l u h ->
  inbox s (map (fun x => Z.max x 0) l) (map (fun x => Z.max x 0) u) (map relu h).
Proof.
  assert (P : forall s a x, IZR a * p2 (- s) <= x -> IZR (Z.max a 0) * p2 (- s) <= relu x).
  { intros s a x H. unfold relu. pose proof (p2_pos (- s)). destruct (Z_le_gt_dec 0 a).
    - rewrite Z.max_l by lia. eapply Rle_trans; [exact H|]. apply Rmax_l.
    - rewrite Z.max_r by lia. simpl. rewrite Rmult_0_l. apply Rmax_r. }
  assert (Q : forall s a x, x <= IZR a * p2 (- s) -> relu x <= IZR (Z.max a 0) * p2 (- s)).
  { intros s a x H. unfold relu. pose proof (p2_pos (- s)). apply Rmax_lub.
    - eapply Rle_trans; [exact H|]. apply IZR_scale_le. lia.
    - assert (0 <= IZR (Z.max a 0)) by (apply IZR_le; lia). nra. }
  induction l; destruct u, h; simpl; try tauto. intros [[L U] H]. split; [split|]; auto.
Qed.

Lemma relu_node_ok : forall M hs n z m, valid M hs -> nth n hs [] = map relu (nth z hs []) ->
  relu_node M z = Some m -> valid_node hs n m.
Proof.
  intros M hs n z m HM Eh. unfold relu_node. destruct (nth_error M z) as [mz|] eqn:E; [|discriminate].
  destruct (room_of _ _); [|discriminate]. intro F. injection F as <-.
  destruct (HM z mz E) as (Hb & _). split; [|split].
  - simpl. rewrite Eh. apply relu_inbox. assumption.
  - reflexivity.
  - simpl. assumption.
Qed.

(** ** The default rule *)
Definition unit_row (j : nat) (k : Z) : list Z := repeat 0%Z j ++ [(k * 2 ^ ROW_BITS)%Z].
Definition unit_start (z j : nat) (k : Z) : start := [(z, unit_row j k, 0%Z, ROW_BITS)].

Lemma unit_entry : forall k, IZR (k * 2 ^ ROW_BITS) * p2 (- ROW_BITS) = IZR k.
Proof.
  intro. rewrite mult_IZR, <- p2_IZR by (unfold ROW_BITS; lia).
  rewrite Rmult_assoc, p2_opp. ring.
Qed.

Lemma unit_row_dot : forall k j h, dot (real ROW_BITS (unit_row j k)) h = IZR k * nth j h 0.
Proof.
  induction j; intros h; unfold unit_row in *; cbn [repeat app].
  - destruct h as [|r h]; cbn [real map dot nth]; [ring|]. rewrite unit_entry. ring.
  - destruct h as [|r h]; unfold real in *; cbn [map dot nth]; [ring|]. rewrite IHj. ring.
Qed.

Lemma unit_start_value : forall hs z j k, start_value hs (unit_start z j k) (IZR k * nth j (nth z hs []) 0).
Proof.
  intros. unfold unit_start. rewrite <- unit_row_dot.
  replace (dot _ _) with (dot (real ROW_BITS (unit_row j k)) (nth z hs []) + 0) by ring.
  constructor; [apply enc_exact | lia | constructor].
Qed.

(** A lower bound of k times a neuron, in the neuron's unit. *)
Definition neuron_bound (M : model) (order : list (nat * mnode)) (D : domain) (z j : nat) (scale k : Z) : option Z :=
  match sweep M order D default (scale + GUARD) (unit_start z j k) with
  | None => None
  | Some t => Some (fshift t GUARD)
  end.

Lemma neuron_bound_ok : forall M order D hs z j scale k b, valid M hs -> in_order M order -> inside M D hs ->
  neuron_bound M order D z j scale k = Some b -> IZR b * p2 (- scale) <= IZR k * nth j (nth z hs []) 0.
Proof.
  intros M order D hs z j scale k b HM HO HD. unfold neuron_bound.
  destruct (sweep _ _ _ _ _ _) as [t|] eqn:E; [|discriminate]. intro F. injection F as <-.
  pose proof (sweep_sound _ _ _ _ _ _ _ _ _ HM HD HO (unit_start_value hs z j k) E) as S.
  pose proof (fshift_le t GUARD (scale + GUARD)) as L.
  replace (- (scale + GUARD - GUARD))%Z with (- scale)%Z in L by lia. lra.
Qed.

Section narrow.
Variables (M : model) (order : list (nat * mnode)) (D : domain) (z : nat) (scale : Z).

Fixpoint narrow_low (j : nat) (l u : list Z) : option (list Z) :=
  match l, u with
  | x :: l, y :: u =>
      match (if (x <? 0)%Z && (0 <? y)%Z
             then match neuron_bound M order D z j scale 1 with None => None | Some b => Some (Z.max x b) end
             else Some x),
            narrow_low (S j) l u with
      | Some x, Some l => Some (x :: l)
      | _, _ => None
      end
  | [], [] => Some []
  | _, _ => None
  end.

Fixpoint narrow_high (j : nat) (l u : list Z) : option (list Z) :=
  match l, u with
  | x :: l, y :: u =>
      match (if (x <? 0)%Z && (0 <? y)%Z
             then match neuron_bound M order D z j scale (-1) with None => None | Some b => Some (Z.min y (- b)) end
             else Some y),
            narrow_high (S j) l u with
      | Some y, Some u => Some (y :: u)
      | _, _ => None
      end
  | [], [] => Some []
  | _, _ => None
  end.

Hypothesis (hs : list (list R)) (HM : valid M hs) (HO : in_order M order) (HD : inside M D hs).

Lemma narrow_low_ok : forall l j u h l', (forall i, nth i h 0 = nth (j + i) (nth z hs []) 0) ->
  inbox scale l u h -> narrow_low j l u = Some l' -> inbox scale l' u h.
Proof.
  induction l as [|x l IH]; intros j u h l' N; destruct u as [|y u], h as [|v h]; simpl; try tauto.
  - intros _ E. injection E as <-. simpl. auto.
  - intros [B H] E. assert (N' : forall i, nth i h 0 = nth (S j + i) (nth z hs []) 0)
      by (intro i; specialize (N (S i)); simpl in N; rewrite N; f_equal; lia).
    destruct (narrow_low (S j) l u) as [l1|] eqn:E1;
      [|destruct (if _ && _ then _ else _); discriminate].
    specialize (IH (S j) u h l1 N' H E1).
    destruct ((x <? 0)%Z && (0 <? y)%Z).
    + destruct (neuron_bound M order D z j scale 1) as [b|] eqn:Eb; [|discriminate]. injection E as <-.
      pose proof (neuron_bound_ok _ _ _ _ _ _ _ _ _ HM HO HD Eb) as L.
      specialize (N 0%nat). simpl in N. rewrite Nat.add_0_r in N. rewrite <- N in L. rewrite Rmult_1_l in L.
      simpl. split; [|assumption]. split; [|apply B].
      destruct (Z.max_spec x b) as [[_ ->]|[_ ->]]; [exact L | apply B].
    + injection E as <-. simpl. auto.
Qed.

Lemma narrow_high_ok : forall l j u h u', (forall i, nth i h 0 = nth (j + i) (nth z hs []) 0) ->
  inbox scale l u h -> narrow_high j l u = Some u' -> inbox scale l u' h.
Proof.
  induction l as [|x l IH]; intros j u h u' N; destruct u as [|y u], h as [|v h]; simpl; try tauto.
  - intros _ E. injection E as <-. simpl. auto.
  - intros [B H] E. assert (N' : forall i, nth i h 0 = nth (S j + i) (nth z hs []) 0)
      by (intro i; specialize (N (S i)); simpl in N; rewrite N; f_equal; lia).
    destruct (narrow_high (S j) l u) as [u1|] eqn:E1;
      [|destruct (if _ && _ then _ else _); discriminate].
    specialize (IH (S j) u h u1 N' H E1).
    destruct ((x <? 0)%Z && (0 <? y)%Z).
    + destruct (neuron_bound M order D z j scale (-1)) as [b|] eqn:Eb; [|discriminate]. injection E as <-.
      pose proof (neuron_bound_ok _ _ _ _ _ _ _ _ _ HM HO HD Eb) as L.
      specialize (N 0%nat). simpl in N. rewrite Nat.add_0_r in N. rewrite <- N in L.
      simpl. split; [|assumption]. split; [apply B|].
      destruct (Z.min_spec y (- b)) as [[_ ->]|[_ ->]]; [apply B | rewrite opp_IZR; lra].
    + injection E as <-. simpl. auto.
Qed.
End narrow.

Definition narrow (M : model) (order : list (nat * mnode)) (D : domain) (z : nat) : option domain :=
  match nth z D None, nth_error M z with
  | Some (l, u), Some m =>
      match narrow_low M order D z (sc m) 0 l u with
      | None => None
      | Some l =>
          match narrow_high M order D z (sc m) 0 l u with
          | None => None
          | Some u => Some (put z (Some (l, u)) D)
          end
      end
  | _, _ => None
  end.

Lemma nth_put : forall {A} z i (o : option A) D, nth i (put z o D) None = if Nat.eqb i z then o else nth i D None.
Proof.
  induction z; intros i o D; destruct i; simpl; auto.
  - destruct D; reflexivity || (destruct i; reflexivity).
  - destruct D; reflexivity.
  - rewrite IHz. destruct (Nat.eqb i z); auto. destruct D; auto. destruct i; reflexivity.
Qed.

Lemma inside_put : forall M D hs z m l u, inside M D hs -> nth_error M z = Some m ->
  inbox (sc m) l u (nth z hs []) -> inside M (put z (Some (l, u)) D) hs.
Proof.
  intros M D hs z m l u HD Em Hb i l' u'. rewrite nth_put.
  destruct (Nat.eqb_spec i z) as [->|_]; [|apply HD].
  intro E. injection E as <- <-. exists m. auto.
Qed.

Lemma narrow_ok : forall M order D hs z D', valid M hs -> in_order M order -> inside M D hs ->
  narrow M order D z = Some D' -> inside M D' hs.
Proof.
  intros M order D hs z D' HM HO HD. unfold narrow.
  destruct (nth z D None) as [[l u]|] eqn:Ed; [|discriminate].
  destruct (nth_error M z) as [m|] eqn:Em; [|discriminate].
  destruct (HD z l u Ed) as (m' & Em' & Hb). rewrite Em in Em'. injection Em' as <-.
  destruct (narrow_low _ _ _ _ _ _ _ _) as [l1|] eqn:E1; [|discriminate].
  destruct (narrow_high _ _ _ _ _ _ _ _) as [u1|] eqn:E2; [|discriminate].
  intro E. injection E as <-. apply (inside_put M D hs z m); auto.
  apply (narrow_high_ok M order D z (sc m) hs HM HO HD l1 0 u); auto.
  apply (narrow_low_ok M order D z (sc m) hs HM HO HD l 0 u); auto.
Qed.
