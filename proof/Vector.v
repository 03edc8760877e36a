(** Vectors as lists. A missing entry counts as zero, so no lemma needs to know lengths. *)
From Coq Require Import Reals ZArith List Lia Lra.
Require Import Dyadic.
Import ListNotations.
Open Scope R_scope.

Lemma Forall2_impl : forall {A B} (P Q : A -> B -> Prop), (forall a b, P a b -> Q a b) ->
  forall l m, Forall2 P l m -> Forall2 Q l m.
Proof. intros A B P Q H l m F. induction F; constructor; auto. Qed.

Fixpoint dot (a h : list R) : R :=
  match a, h with x :: a, y :: h => x * y + dot a h | _, _ => 0 end.

Fixpoint vadd (a b : list R) : list R :=
  match a, b with [], _ => b | _, [] => a | x :: a, y :: b => (x + y) :: vadd a b end.

Fixpoint zadd (a b : list Z) : list Z :=
  match a, b with [], _ => b | _, [] => a | x :: a, y :: b => (x + y)%Z :: zadd a b end.

(** [zaxpy k r acc] is k r + acc. *)
Fixpoint zaxpy (k : Z) (r acc : list Z) : list Z :=
  match r, acc with
  | [], _ => acc
  | x :: r, [] => (k * x)%Z :: zaxpy k r []
  | x :: r, y :: acc => (k * x + y)%Z :: zaxpy k r acc
  end.

(** Integers in units of 2^-e as reals. *)
Definition real (e : Z) (v : list Z) : list R := map (fun z => IZR z * p2 (- e)) v.

Lemma dot_nil_r : forall a, dot a [] = 0.
Proof. destruct a; reflexivity. Qed.

Lemma dot_vadd_l : forall h a b, dot (vadd a b) h = dot a h + dot b h.
Proof.
  induction h as [|y h IH]; intros a b.
  - rewrite !dot_nil_r. ring.
  - destruct a as [|x a]; destruct b as [|z b]; simpl; try rewrite IH; ring.
Qed.

Lemma dot_comm : forall a b, dot a b = dot b a.
Proof. induction a; destruct b; simpl; auto. rewrite IHa. ring. Qed.

Lemma dot_vadd_r : forall a h k, dot a (vadd h k) = dot a h + dot a k.
Proof. intros. rewrite dot_comm, dot_vadd_l. f_equal; apply dot_comm. Qed.

Lemma dot_scale : forall k a h, dot (map (Rmult k) a) h = k * dot a h.
Proof. induction a; destruct h; simpl; try rewrite IHa; ring. Qed.

Lemma dot_hd : forall a x h, dot a (x :: h) = hd 0 a * x + dot (tl a) h.
Proof. destruct a; intros; simpl; ring. Qed.

Lemma hd_real : forall e v, hd 0 (real e v) = IZR (hd 0%Z v) * p2 (- e).
Proof. destruct v; simpl; ring. Qed.

Lemma tl_real : forall e v, tl (real e v) = real e (tl v).
Proof. destruct v; reflexivity. Qed.

(** Every real lies between an integer and this integer plus w, in units of 2^-e. *)
Definition enc (e : Z) (v : list Z) (w : Z) (x : list R) : Prop :=
  Forall2 (fun z r => IZR z * p2 (- e) <= r <= IZR (z + w) * p2 (- e)) v x.

Lemma enc_exact : forall e v, enc e v 0 (real e v).
Proof.
  induction v; simpl; constructor; auto. rewrite Z.add_0_r. lra.
Qed.

Definition vshift (r : Z) (v : list Z) : list Z := if (r =? 0)%Z then v else map (fun z => fshift z r) v.

Lemma enc_shift : forall e v w x r, enc e v w x -> enc (e - r) (vshift r v) (rounded w r) x.
Proof.
  intros e v w x r H. unfold vshift. destruct (Z.eqb_spec r 0) as [->|_].
  - replace (e - 0)%Z with e by lia.
    replace (rounded w 0) with w by (unfold rounded, fshift; rewrite Z.shiftr_0_r; simpl; lia). exact H.
  - induction H; simpl; constructor; auto. apply shrink. assumption.
Qed.

Lemma IZR_scale_le : forall a b e, (a <= b)%Z -> IZR a * p2 e <= IZR b * p2 e.
Proof. intros. apply Rmult_le_compat_r; [left; apply p2_pos | apply IZR_le; assumption]. Qed.

Lemma enc_zadd : forall e v w x, enc e v w x -> (0 <= w)%Z ->
  forall v' w' x', enc e v' w' x' -> (0 <= w')%Z -> enc e (zadd v v') (w + w') (vadd x x').
Proof.
  intros e v w x H W. unfold enc in *. induction H as [|z r v x Hz Hv IH]; intros v' w' x' H' W'.
  - simpl. eapply Forall2_impl; [|exact H']. simpl. intros a b [L U]. split; auto.
    eapply Rle_trans; [exact U|]. apply IZR_scale_le. lia.
  - destruct H' as [|z' r' v' x' Hz' Hv'].
    + simpl. constructor.
      * split; [apply Hz|]. eapply Rle_trans; [apply Hz|]. apply IZR_scale_le. lia.
      * eapply Forall2_impl; [|exact Hv]. simpl. intros a b [L U]. split; auto.
        eapply Rle_trans; [exact U|]. apply IZR_scale_le. lia.
    + simpl. constructor; [|apply IH; assumption].
      rewrite !plus_IZR in *. lra.
Qed.

(** The same with both ends moved: a <= 0 <= b. *)
Definition encab (e : Z) (v : list Z) (a b : Z) (x : list R) : Prop :=
  Forall2 (fun z r => IZR (z + a) * p2 (- e) <= r <= IZR (z + b) * p2 (- e)) v x.

Lemma encab_weaken : forall e v a b a' b' x,
  (a' <= a)%Z -> (b <= b')%Z -> encab e v a b x -> encab e v a' b' x.
Proof.
  intros. eapply Forall2_impl; [|eassumption]. simpl. intros z r [L U]. split.
  - eapply Rle_trans; [|exact L]. apply IZR_scale_le. lia.
  - eapply Rle_trans; [exact U|]. apply IZR_scale_le. lia.
Qed.

Lemma encab_enc : forall e v a b x, encab e v a b x -> enc e (map (fun z => (z + a)%Z) v) (b - a) x.
Proof.
  intros. unfold enc. induction H; simpl; constructor; auto.
  replace (x + a + (b - a))%Z with (x + b)%Z by lia. assumption.
Qed.

Lemma scaled_entry : forall e e' k z w r,
  IZR z * p2 (- e') <= r <= IZR (z + w) * p2 (- e') -> (0 <= w)%Z ->
  IZR (k * z + w * Z.min k 0) * p2 (- (e + e')) <= IZR k * p2 (- e) * r
    <= IZR (k * z + w * Z.max k 0) * p2 (- (e + e')).
Proof.
  intros e e' k z w r [L U] W.
  replace (- (e + e'))%Z with (- e + - e')%Z by lia. rewrite p2_add.
  pose proof (p2_pos (- e)) as G. pose proof (p2_pos (- e')) as G'.
  set (g := p2 (- e)) in *. set (g' := p2 (- e')) in *.
  rewrite plus_IZR in U. rewrite !plus_IZR, !mult_IZR.
  destruct (Z_le_gt_dec k 0) as [K|K].
  - rewrite Z.min_l, Z.max_r by lia. assert (IZR k <= 0) by (apply IZR_le; lia). simpl (IZR 0).
    assert (0 <= - IZR k * g) by nra. split.
    + replace ((IZR k * IZR z + IZR w * IZR k) * (g * g')) with (IZR k * g * ((IZR z + IZR w) * g')) by ring. nra.
    + replace ((IZR k * IZR z + IZR w * 0) * (g * g')) with (IZR k * g * (IZR z * g')) by ring. nra.
  - rewrite Z.min_r, Z.max_l by lia. assert (0 <= IZR k) by (apply IZR_le; lia). simpl (IZR 0).
    assert (0 <= IZR k * g) by nra. split.
    + replace ((IZR k * IZR z + IZR w * 0) * (g * g')) with (IZR k * g * (IZR z * g')) by ring. nra.
    + replace ((IZR k * IZR z + IZR w * IZR k) * (g * g')) with (IZR k * g * ((IZR z + IZR w) * g')) by ring. nra.
Qed.

Lemma encab_axpy : forall e e' k w r x, enc e' r w x -> (0 <= w)%Z ->
  forall acc a b y, encab (e + e') acc a b y -> (a <= 0 <= b)%Z ->
  encab (e + e') (zaxpy k r acc) (a + w * Z.min k 0) (b + w * Z.max k 0)
    (vadd (map (Rmult (IZR k * p2 (- e))) x) y).
Proof.
  intros e e' k w r x H W. unfold enc, encab in *.
  induction H as [|z q r x Hz Hr IH]; intros acc a b y Hy AB.
  - simpl. apply (encab_weaken _ acc a b); auto; nia.
  - pose proof (scaled_entry e e' k z w q Hz W) as S.
    destruct Hy as [|z' q' acc y Hz' Hacc].
    + simpl. constructor.
      * split; [eapply Rle_trans; [|apply S] | eapply Rle_trans; [apply S|]]; apply IZR_scale_le; lia.
      * specialize (IH [] a b [] ltac:(constructor) AB). simpl in IH.
        destruct (map (Rmult (IZR k * p2 (- e))) x); exact IH.
    + simpl. constructor; [|apply IH; assumption].
      rewrite !plus_IZR in *. lra.
Qed.

(** Lower bounds of entries, and what coefficients that are known up to w may cost. *)
Definition lowb (s : Z) (l : list Z) (h : list R) : Prop := Forall2 (fun z r => IZR z * p2 (- s) <= r) l h.
Fixpoint below (l : list Z) : Z := match l with [] => 0%Z | z :: l => (Z.max 0 (- z) + below l)%Z end.

Lemma below_pos : forall l, (0 <= below l)%Z.
Proof. induction l; simpl; lia. Qed.

Lemma enc_dot : forall s l h, lowb s l h -> forall e v w x, enc e v w x -> (0 <= w)%Z ->
  dot (real e v) h - IZR (w * below l) * p2 (- (e + s)) <= dot x h.
Proof.
  intros s l h H. induction H as [|z y l h Hz Hl IH]; intros e v w x Hv W.
  - rewrite !dot_nil_r. simpl. rewrite Z.mul_0_r. lra.
  - pose proof (below_pos l) as B. pose proof (p2_pos (- (e + s))) as G.
    destruct Hv as [|c r v x Hc Hv].
    + simpl. assert (0 <= IZR (w * (Z.max 0 (- z) + below l))) by (apply IZR_le; nia). nra.
    + specialize (IH e v w x Hv W). simpl dot. simpl below.
      replace (w * (Z.max 0 (- z) + below l))%Z with (w * Z.max 0 (- z) + w * below l)%Z by ring.
      rewrite plus_IZR, Rmult_plus_distr_r.
      enough (IZR c * p2 (- e) * y - IZR (w * Z.max 0 (- z)) * p2 (- (e + s)) <= r * y) by lra.
      replace (- (e + s))%Z with (- e + - s)%Z by lia. rewrite p2_add, mult_IZR.
      rewrite plus_IZR in Hc. pose proof (p2_pos (- e)) as P. pose proof (p2_pos (- s)) as Q.
      set (p := p2 (- e)) in *. set (q := p2 (- s)) in *.
      assert (W' : 0 <= IZR w) by (apply IZR_le; lia).
      assert (M : 0 <= IZR (Z.max 0 (- z))) by (apply IZR_le; lia).
      assert (N : - IZR z <= IZR (Z.max 0 (- z))) by (rewrite <- opp_IZR; apply IZR_le; lia).
      destruct (Rle_or_lt 0 y) as [Y|Y].
      * assert (0 <= (r - IZR c * p) * y) by (apply Rmult_le_pos; lra).
        assert (0 <= IZR w * p * (IZR (Z.max 0 (- z)) * q)) by (repeat apply Rmult_le_pos; lra). nra.
      * assert (Ny : - y <= IZR (Z.max 0 (- z)) * q) by nra.
        assert (A : (r - IZR c * p) * - y <= IZR w * p * - y) by (apply Rmult_le_compat_r; lra).
        assert (C : IZR w * p * - y <= IZR w * p * (IZR (Z.max 0 (- z)) * q))
          by (apply Rmult_le_compat_l; [apply Rmult_le_pos; lra | assumption]).
        nra.
Qed.

(** Intervals of entries. *)
Fixpoint inbox (s : Z) (l u : list Z) (h : list R) : Prop :=
  match l, u, h with
  | [], [], [] => True
  | a :: l, b :: u, x :: h => (IZR a * p2 (- s) <= x <= IZR b * p2 (- s)) /\ inbox s l u h
  | _, _, _ => False
  end.

Lemma inbox_lowb : forall s l u h, inbox s l u h -> lowb s l h.
Proof.
  induction l; destruct u, h; simpl; try tauto; intros; constructor; try tauto.
  apply (IHl u). tauto.
Qed.
