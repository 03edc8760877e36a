(** Powers of two, shifts that round down, and rationals rounded to multiples of a power of two. *)
From Coq Require Import Reals ZArith Lia Lra.
Open Scope R_scope.

Definition p2 (e : Z) : R := powerRZ 2 e.

Lemma p2_pos : forall e, 0 < p2 e.
Proof. intro e. apply powerRZ_lt. lra. Qed.

Lemma p2_add : forall a b, p2 (a + b) = p2 a * p2 b.
Proof. intros. apply powerRZ_add. lra. Qed.

Lemma p2_0 : p2 0 = 1.
Proof. reflexivity. Qed.

Lemma p2_opp : forall e, p2 e * p2 (- e) = 1.
Proof. intro. rewrite <- p2_add. replace (e + - e)%Z with 0%Z by lia. apply p2_0. Qed.

Lemma p2_IZR : forall e, (0 <= e)%Z -> p2 e = IZR (2 ^ e).
Proof.
  intros e H. destruct (Z_of_nat_complete e H) as [n ->].
  unfold p2. rewrite <- pow_powerRZ. apply pow_IZR.
Qed.

(** [fshift x r] is floor (x / 2^r), for r of any sign. *)
Definition fshift (x r : Z) : Z := Z.shiftr x r.

Lemma fshift_left : forall x r, (r <= 0)%Z -> IZR (fshift x r) = IZR x * p2 (- r).
Proof.
  intros x r H. unfold fshift.
  replace r with (- - r)%Z by lia. rewrite Z.shiftr_opp_r, Z.shiftl_mul_pow2 by lia.
  rewrite mult_IZR, p2_IZR by lia. replace (- - - r)%Z with (- r)%Z by lia. reflexivity.
Qed.

Lemma fshift_floor : forall x r, IZR (fshift x r) <= IZR x * p2 (- r) < IZR (fshift x r) + 1.
Proof.
  intros x r. destruct (Z_le_gt_dec r 0) as [H|H].
  - rewrite fshift_left by lia. lra.
  - unfold fshift. rewrite Z.shiftr_div_pow2 by lia.
    assert (P : (0 < 2 ^ r)%Z) by (apply Z.pow_pos_nonneg; lia).
    pose proof (Z_div_mod_eq_full x (2 ^ r)) as E. pose proof (Z.mod_pos_bound x (2 ^ r) P) as B.
    set (q := (x / 2 ^ r)%Z) in *. set (m := (x mod 2 ^ r)%Z) in *.
    assert (Q : p2 r = IZR (2 ^ r)) by (apply p2_IZR; lia).
    pose proof (p2_opp r) as O. pose proof (p2_pos (- r)) as G. rewrite Q in O.
    rewrite E. rewrite plus_IZR, mult_IZR.
    assert (0 <= IZR m < IZR (2 ^ r)) as [L U] by (split; [apply IZR_le | apply IZR_lt]; lia).
    rewrite Rmult_plus_distr_r.
    replace (IZR (2 ^ r) * IZR q * p2 (- r)) with (IZR q * (IZR (2 ^ r) * p2 (- r))) by ring.
    rewrite O. split; nra.
Qed.

(** The width of an interval whose ends were shifted right by r, the lower one rounded down. *)
Definition rounded (w r : Z) : Z := (- fshift (- w) r + if 0 <? r then 1 else 0)%Z.

Lemma rounded_pos : forall w r, (0 <= w)%Z -> (0 <= rounded w r)%Z.
Proof.
  intros w r H. unfold rounded. pose proof (fshift_floor (- w) r) as [L _].
  assert (IZR (fshift (- w) r) <= 0).
  { eapply Rle_trans; [exact L|]. pose proof (p2_pos (- r)).
    assert (IZR (- w) <= 0) by (apply IZR_le; lia). nra. }
  assert (fshift (- w) r <= 0)%Z by (apply le_IZR; exact H0).
  destruct (0 <? r)%Z; lia.
Qed.

Lemma shrink : forall e v w r x,
  IZR v * p2 (- e) <= x <= IZR (v + w) * p2 (- e) ->
  IZR (fshift v r) * p2 (- (e - r)) <= x <= IZR (fshift v r + rounded w r) * p2 (- (e - r)).
Proof.
  intros e v w r x [L U].
  assert (S : p2 (- e) = p2 (- r) * p2 (- (e - r))) by (rewrite <- p2_add; f_equal; lia).
  rewrite S in L, U. pose proof (p2_pos (- (e - r))) as G. set (g := p2 (- (e - r))) in *.
  pose proof (fshift_floor v r) as [V1 V2]. pose proof (fshift_floor (- w) r) as [W1 _].
  rewrite opp_IZR in W1. rewrite plus_IZR in U.
  split.
  - eapply Rle_trans; [|exact L]. rewrite <- Rmult_assoc. apply Rmult_le_compat_r; lra.
  - eapply Rle_trans; [exact U|]. rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [lra|].
    unfold rounded. rewrite !plus_IZR, opp_IZR.
    destruct (Z.ltb_spec 0 r) as [P|P]; simpl (IZR 1); simpl (IZR 0).
    + lra.
    + rewrite (fshift_left v r P) in *. lra.
Qed.

Lemma fshift_le : forall x r e, IZR (fshift x r) * p2 (- (e - r)) <= IZR x * p2 (- e).
Proof.
  intros. assert (S : p2 (- e) = p2 (- r) * p2 (- (e - r))) by (rewrite <- p2_add; f_equal; lia).
  rewrite S, <- Rmult_assoc. apply Rmult_le_compat_r.
  - left; apply p2_pos.
  - apply fshift_floor.
Qed.

(** A rational n / d with d > 0, and the integers around its product with 2^k. *)
Definition rat (q : Z * Z) : R := IZR (fst q) / IZR (snd q).
Definition qfloor (q : Z * Z) (k : Z) : Z :=
  (if 0 <=? k then (fst q * 2 ^ k) / snd q else fst q / (snd q * 2 ^ (- k)))%Z.
Definition qceil (q : Z * Z) (k : Z) : Z := (- qfloor (- fst q, snd q) k)%Z.

Lemma div_floor : forall a b, (0 < b)%Z -> IZR (a / b) <= IZR a / IZR b.
Proof.
  intros a b H. pose proof (Z.mul_div_le a b H) as M. apply IZR_le in M. rewrite mult_IZR in M.
  assert (0 < IZR b) by (apply IZR_lt; lia).
  apply Rmult_le_reg_l with (IZR b); [lra|].
  replace (IZR b * (IZR a / IZR b)) with (IZR a) by (field; lra). exact M.
Qed.

Lemma qfloor_le : forall q k, (0 < snd q)%Z -> IZR (qfloor q k) * p2 (- k) <= rat q.
Proof.
  intros [n d] k H. unfold rat, qfloor. simpl in *.
  assert (D : 0 < IZR d) by (apply IZR_lt; lia). pose proof (p2_pos (- k)) as G.
  destruct (Z.leb_spec 0 k) as [K|K].
  - pose proof (div_floor (n * 2 ^ k) d H) as L. rewrite mult_IZR, <- p2_IZR in L by lia.
    pose proof (p2_opp k) as O.
    replace (IZR n / IZR d) with (IZR n * (p2 k * p2 (- k)) / IZR d) by (rewrite O; field; lra).
    replace (IZR n * (p2 k * p2 (- k)) / IZR d) with (IZR n * p2 k / IZR d * p2 (- k)) by (field; lra).
    apply Rmult_le_compat_r; lra.
  - assert (P : (0 < 2 ^ (- k))%Z) by (apply Z.pow_pos_nonneg; lia).
    pose proof (div_floor n (d * 2 ^ (- k)) ltac:(nia)) as L.
    rewrite mult_IZR, <- p2_IZR in L by lia.
    replace (IZR n / IZR d) with (IZR n / (IZR d * p2 (- k)) * p2 (- k)) by (field; lra).
    apply Rmult_le_compat_r; lra.
Qed.

Lemma qceil_ge : forall q k, (0 < snd q)%Z -> rat q <= IZR (qceil q k) * p2 (- k).
Proof.
  intros [n d] k H. unfold qceil. simpl. pose proof (qfloor_le (- n, d)%Z k H) as L.
  unfold rat in *. simpl in *. rewrite opp_IZR in *.
  replace (IZR n / IZR d) with (- (- IZR n / IZR d)).
  - lra.
  - assert (0 < IZR d) by (apply IZR_lt; lia). field. lra.
Qed.
