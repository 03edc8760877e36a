(** Networks, what they compute over the reals, and their weights rounded to few bits. *)
From Coq Require Import Reals ZArith List Lia Lra.
Require Import Dyadic Vector.
Import ListNotations.
Open Scope R_scope.

(** A matrix of weights between [wlow] and [whigh], in units of 2^-[wexp]; the two are the same unless a quotient or a
    root had to be enclosed. A row belongs to an output. The checker rounds it to units of 2^-[wbits]. *)
Record weights := { wlow : list (list Z); whigh : list (list Z); wexp : Z; wbits : Z }.

Inductive node :=
| Input
| Affine (terms : list (nat * weights)) (blow bhigh : list Z) (bexp : Z)
| Relu (parent : nat).

Definition network := list node.

Definition relu (x : R) : R := Rmax x 0.
Definition apply (W : list (list R)) (h : list R) : list R := map (fun row => dot row h) W.
Definition affine (terms : list (nat * list (list R))) (b : list R) (hs : list (list R)) : list R :=
  fold_right (fun t acc => vadd (apply (snd t) (nth (fst t) hs [])) acc) b terms.

Definition upb (s : Z) (u : list Z) (h : list R) : Prop := Forall2 (fun z r => r <= IZR z * p2 (- s)) u h.

Definition some_weights (w : weights) (W : list (list R)) : Prop :=
  Forall2 (lowb (wexp w)) (wlow w) W /\ Forall2 (upb (wexp w)) (whigh w) W.

(** [hs] lists the values of all nodes. *)
Definition computes (hs : list (list R)) (n : node) (h : list R) : Prop :=
  match n with
  | Input => True
  | Affine terms blow bhigh bexp => exists Ws b,
      Forall2 (fun t W => some_weights (snd t) W) terms Ws /\ lowb bexp blow b /\ upb bexp bhigh b /\
      h = affine (combine (map fst terms) Ws) b hs
  | Relu z => h = map relu (nth z hs [])
  end.

Definition trace (net : network) (hs : list (list R)) : Prop :=
  forall n k, nth_error net n = Some k -> computes hs k (nth n hs []).

(** Weights in [mat, mat + err] 2^-exp; no sum of magnitudes of a row or a column exceeds [mass]. *)
Record linear := { mat : list (list Z); err : Z; exp : Z; mass : Z }.
Definition holds (l : linear) (W : list (list R)) : Prop := Forall2 (fun r x => enc (exp l) r (err l) x) (mat l) W.

Fixpoint row_error (m c : list Z) : Z :=
  match m, c with x :: m, y :: c => Z.max (y - x) (row_error m c) | _, _ => 0%Z end.
Fixpoint error (m c : list (list Z)) : Z :=
  match m, c with x :: m, y :: c => Z.max (row_error x y) (error m c) | _, _ => 0%Z end.

Fixpoint sum (v : list Z) : Z := match v with [] => 0%Z | z :: v => (z + sum v)%Z end.
Fixpoint most (v : list Z) : Z := match v with [] => 0%Z | z :: v => Z.max z (most v) end.
Definition mass_of (m : list (list Z)) (e : Z) : Z :=
  let sizes := map (map (fun z => Z.abs z + e)%Z) m in
  Z.max (most (map sum sizes)) (most (fold_right zadd [] sizes)).

Definition prepare (w : weights) : linear :=
  let r := (wexp w - wbits w)%Z in
  let m := map (vshift r) (wlow w) in
  let c := map (map (fun z => - fshift (- z) r)%Z) (whigh w) in
  let e := error m c in
  {| mat := m; err := e; exp := wbits w; mass := mass_of m e |}.

Lemma row_error_pos : forall m c, (0 <= row_error m c)%Z.
Proof. induction m; destruct c; simpl; try lia. specialize (IHm c). lia. Qed.

Lemma error_pos : forall m c, (0 <= error m c)%Z.
Proof. induction m; destruct c; simpl; try lia. pose proof (row_error_pos a l). lia. Qed.

Lemma vshift_map : forall r v, vshift r v = map (fun z => fshift z r) v.
Proof.
  intros. unfold vshift. destruct (Z.eqb_spec r 0) as [->|_]; [|reflexivity].
  symmetry. rewrite <- (map_id v) at 2. apply map_ext. intro. unfold fshift. apply Z.shiftr_0_r.
Qed.

Lemma prepare_row : forall e k low x, lowb e low x -> forall high, upb e high x -> forall err,
  (row_error (map (fun z => fshift z (e - k)) low) (map (fun z => - fshift (- z) (e - k))%Z high) <= err)%Z ->
  enc k (map (fun z => fshift z (e - k)) low) err x.
Proof.
  intros e k low x H. induction H as [|z y low x Hz Hl IH]; intros high U err E; simpl; constructor.
  - inversion U as [|z' y' high' x' Hz' Hu]; subst. simpl in E.
    pose proof (fshift_le z (e - k) e) as L. pose proof (fshift_le (- z') (e - k) e) as L'.
    replace (- (e - (e - k)))%Z with (- k)%Z in * by lia. rewrite opp_IZR in L'.
    split; [lra|]. eapply Rle_trans; [exact Hz'|].
    apply Rle_trans with (IZR (- fshift (- z') (e - k)) * p2 (- k)).
    + rewrite opp_IZR. lra.
    + apply IZR_scale_le. lia.
  - inversion U as [|z' y' high' x' Hz' Hu]; subst. simpl in E. apply (IH high' Hu). lia.
Qed.

Lemma prepare_sound : forall w W, some_weights w W -> holds (prepare w) W.
Proof.
  intros [low high e k] W [L U]. simpl in *. unfold holds, prepare. simpl.
  set (err := error (map (vshift (e - k)) low) (map (map (fun z => - fshift (- z) (e - k))%Z) high)).
  assert (E : (error (map (vshift (e - k)) low) (map (map (fun z => - fshift (- z) (e - k))%Z) high) <= err)%Z) by (unfold err; lia).
  clearbody err. revert high U E. induction L as [|l x low W Hl HL IH]; intros high U E; simpl; constructor.
  - inversion U as [|u x' high' W' Hu HU]; subst. simpl in E. rewrite vshift_map in *.
    apply (prepare_row e k l x Hl u Hu). lia.
  - inversion U as [|u x' high' W' Hu HU]; subst. simpl in E. apply (IH high' HU). lia.
Qed.

(** Multipliers of the outputs of a matrix as multipliers of its inputs; outputs without one cost nothing. *)
Fixpoint pull (d : list Z) (m : list (list Z)) : list Z :=
  match d, m with
  | k :: d, r :: m => if (k =? 0)%Z then pull d m else zaxpy k r (pull d m)
  | _, _ => []
  end.
Fixpoint pullR (e : Z) (d : list Z) (W : list (list R)) : list R :=
  match d, W with
  | k :: d, r :: W => if (k =? 0)%Z then pullR e d W else vadd (map (Rmult (IZR k * p2 (- e))) r) (pullR e d W)
  | _, _ => []
  end.
Fixpoint ups (d : list Z) : Z := match d with [] => 0%Z | k :: d => (Z.max k 0 + ups d)%Z end.
Fixpoint downs (d : list Z) : Z := match d with [] => 0%Z | k :: d => (Z.min k 0 + downs d)%Z end.

Lemma ups_pos : forall d, (0 <= ups d)%Z. Proof. induction d; simpl; lia. Qed.
Lemma downs_neg : forall d, (downs d <= 0)%Z. Proof. induction d; simpl; lia. Qed.

Lemma pull_enc : forall l W, holds l W -> (0 <= err l)%Z -> forall e d,
  encab (e + exp l) (pull d (mat l)) (err l * downs d) (err l * ups d) (pullR e d W).
Proof.
  intros [m w k q] W H P e. unfold holds in H. simpl in *.
  induction H as [|r x m W Hr HW IH]; intros d; destruct d as [|c d]; simpl; try constructor.
  destruct (Z.eqb_spec c 0) as [->|N].
  - simpl. apply IH.
  - pose proof (ups_pos d). pose proof (downs_neg d).
    eapply encab_weaken; [| |eapply encab_axpy; [exact Hr|exact P|apply IH|nia]]; nia.
Qed.

Lemma pull_dot : forall e W h d, dot (pullR e d W) h = dot (real e d) (apply W h).
Proof.
  intros e W h. induction W as [|r W IH]; intros d; destruct d as [|c d]; simpl; try reflexivity.
  destruct (Z.eqb_spec c 0) as [->|N].
  - rewrite IH. simpl. ring.
  - rewrite dot_vadd_l, dot_scale, IH. reflexivity.
Qed.
