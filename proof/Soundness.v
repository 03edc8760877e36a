(** Whole certificates, and the theorem. *)
From Coq Require Import Reals ZArith List Lia Lra Bool.
Require Import Dyadic Vector Network Bounds Model Checker.
Import ListNotations.
Open Scope R_scope.
Local Opaque p2 ROW_BITS.

(** Claims narrow the intervals of the arguments of one ReLU layer, node [claimed]: lower ends (true) or upper ends. *)
Record claims := { claimed : nat; ends : list (bool * nat * tree) }.
Record certificate := { bits : Z; claim_list : list claims; trees : list (list nat * tree) }.

(** ** Models *)
Definition rounded_node (k : node) : kind :=
  match k with
  | Input => KInput
  | Affine terms bl bh be => KAffine (map (fun t => (fst t, prepare (snd t))) terms) bl bh be
  | Relu z => KRelu z
  end.

Lemma rounded_node_ok : forall hs k h, computes hs k h -> computesK hs (rounded_node k) h.
Proof.
  intros hs [|terms bl bh be|z] h; simpl; auto.
  intros (Ws & b & Ht & Hl & Hu & E). exists Ws, b. split; [|split; [assumption|split; [assumption|]]].
  - clear - Ht. induction Ht; simpl; constructor; auto. simpl. split; [apply prepare_sound; assumption|].
    destruct x as [p w]. unfold prepare. simpl. apply error_pos.
  - rewrite map_map. simpl. assumption.
Qed.

Definition is_argument (ks : list kind) (i : nat) : bool :=
  existsb (fun k => match k with KRelu z => Nat.eqb z i | _ => false end) ks.
Definition arguments (ks : list kind) : list nat := filter (is_argument ks) (seq 0 (length ks)).

Fixpoint whole_from (before : list nat) (i : nat) (M : model) : domain :=
  match M with
  | [] => []
  | m :: M => (if Nat.eqb i 0 || existsb (Nat.eqb i) before then Some (lo m, hi m) else None) :: whole_from before (S i) M
  end.
Definition whole (before : list nat) (M : model) : domain := whole_from before 0 M.

Lemma whole_from_nth : forall before M k i l u, nth i (whole_from before k M) None = Some (l, u) ->
  exists m, nth_error M i = Some m /\ l = lo m /\ u = hi m.
Proof.
  induction M as [|m M IH]; intros k i l u E; simpl in E; [destruct i; discriminate|].
  destruct i; simpl in *.
  - destruct (_ || _); [|discriminate]. injection E as <- <-. exists m. auto.
  - eapply IH. eassumption.
Qed.

Lemma whole_inside : forall before M hs, valid M hs -> inside M (whole before M) hs.
Proof.
  intros before M hs HM i l u E. destruct (whole_from_nth _ _ _ _ _ _ E) as (m & Em & -> & ->).
  exists m. split; [assumption|]. apply (HM i m Em).
Qed.

Definition with_ends (m : mnode) (l u : list Z) : mnode := make_node (knd m) (sc m) l u (room m).
Fixpoint replace_node (n : nat) (l u : list Z) (M : model) {struct M} : model :=
  match M, n with
  | [], _ => []
  | m :: M, O => with_ends m l u :: M
  | m :: M, S n => m :: replace_node n l u M
  end.

Lemma replace_node_nth : forall M n l u i m, nth_error (replace_node n l u M) i = Some m ->
  nth_error M i = Some m \/ (i = n /\ exists m0, nth_error M n = Some m0 /\ m = with_ends m0 l u).
Proof.
  induction M as [|m0 M IH]; intros n l u i m E; simpl in E; [destruct i; discriminate|].
  destruct n, i; simpl in *; auto.
  - injection E as <-. right. split; auto. exists m0. auto.
  - destruct (IH _ _ _ _ _ E) as [H|[Ei H]]; [left; assumption | right; subst i; auto].
Qed.

Lemma replace_node_length : forall M n l u, length (replace_node n l u M) = length M.
Proof. induction M; destruct n; simpl; auto. Qed.

Lemma valid_replace : forall M hs n l u, valid M hs ->
  (forall m, nth_error M n = Some m -> inbox (sc m) l u (nth n hs [])) -> valid (replace_node n l u M) hs.
Proof.
  intros M hs n l u HM H i m E. destruct (replace_node_nth _ _ _ _ _ _ E) as [E0|(-> & m0 & E0 & ->)].
  - apply HM. assumption.
  - destruct (HM n m0 E0) as (_ & _ & Hc). split; [|split]; simpl; auto.
Qed.

(** One more node; the arguments of ReLUs are narrowed by the default rule. *)
Definition extend (before : list nat) (nbits : Z) (k : kind) (M : model) : option model :=
  let n := length M in
  match (match k with
         | KInput => None
         | KAffine terms bl bh be => affine_node M nbits terms bl bh be
         | KRelu z => relu_node M z
         end) with
  | None => None
  | Some m =>
      let M := M ++ [m] in
      if existsb (Nat.eqb n) before then
        match narrow M (numbered M) (whole before M) n with
        | None => None
        | Some D => match nth n D None with None => None | Some (l, u) => Some (replace_node n l u M) end
        end
      else Some M
  end.

Lemma valid_app : forall M hs m, valid M hs -> valid_node hs (length M) m -> valid (M ++ [m]) hs.
Proof.
  intros M hs m HM H i m' E. destruct (Nat.lt_ge_cases i (length M)) as [L|L].
  - rewrite nth_error_app1 in E by assumption. apply HM. assumption.
  - rewrite nth_error_app2 in E by assumption. destruct (i - length M)%nat eqn:Ei; simpl in E.
    + injection E as <-. replace i with (length M) by lia. assumption.
    + destruct n; discriminate.
Qed.

Lemma extend_ok : forall before nbits k M M' hs, valid M hs -> computesK hs k (nth (length M) hs []) ->
  extend before nbits k M = Some M' -> valid M' hs /\ length M' = S (length M).
Proof.
  intros before nbits k M M' hs HM Hk. unfold extend.
  destruct (match k with KInput => _ | KAffine _ _ _ _ => _ | KRelu _ => _ end) as [m|] eqn:Em; [|discriminate].
  assert (Hm : valid_node hs (length M) m).
  { destruct k; [discriminate| |].
    - eapply affine_node_ok; eauto.
    - eapply relu_node_ok; eauto. }
  pose proof (valid_app _ _ _ HM Hm) as HM1. set (M1 := M ++ [m]) in *.
  assert (L1 : length M1 = S (length M)) by (unfold M1; rewrite app_length; simpl; lia).
  destruct (existsb _ before).
  - destruct (narrow _ _ _ _) as [D|] eqn:Ed; [|discriminate].
    pose proof (narrow_ok _ _ _ _ _ _ HM1 (numbered_ok M1) (whole_inside before M1 hs HM1) Ed) as HD.
    destruct (nth (length M) D None) as [[l u]|] eqn:E; [|discriminate]. intro F. injection F as <-.
    split; [|rewrite replace_node_length; assumption]. apply valid_replace; auto.
    intros m0 E0. destruct (HD _ _ _ E) as (m1 & E1 & Hb). rewrite E0 in E1. injection E1 as <-. assumption.
  - intro F. injection F as <-. auto.
Qed.

Fixpoint advance (before : list nat) (nbits : Z) (last : nat) (rest : list kind) (M : model) : option (list kind * model) :=
  match rest with
  | [] => Some ([], M)
  | k :: rest' =>
      if (last <? length M)%nat then Some (rest, M)
      else match extend before nbits k M with None => None | Some M => advance before nbits last rest' M end
  end.

Definition good (rest : list kind) (M : model) (hs : list (list R)) : Prop :=
  valid M hs /\ forall i k, nth_error rest i = Some k -> computesK hs k (nth (length M + i) hs []).

Lemma advance_ok : forall before nbits last hs rest M rest' M', good rest M hs ->
  advance before nbits last rest M = Some (rest', M') -> good rest' M' hs.
Proof.
  induction rest as [|k rest IH]; intros M rest' M' [HM HR] E; simpl in E.
  - injection E as <- <-. split; auto.
  - destruct (last <? length M)%nat; [injection E as <- <-; split; auto|].
    destruct (extend before nbits k M) as [M1|] eqn:E1; [|discriminate].
    pose proof (HR 0%nat k eq_refl) as Hk. rewrite Nat.add_0_r in Hk.
    destruct (extend_ok _ _ _ _ _ _ HM Hk E1) as [HM1 L1].
    apply (IH M1 rest' M'); [|assumption]. split; auto. intros i k' Ei.
    specialize (HR (S i) k' Ei). rewrite L1. replace (S (length M) + i)%nat with (length M + S i)%nat by lia. assumption.
Qed.

(** ** Claims *)
Definition claim_margin (M : model) (order : list (nat * mnode)) (zs : list nat) (z j : nat) (scale k : Z)
    (D : domain) (p : path) (data : leaf) : option Z :=
  match row_weights data, stated M zs p data with
  | [], Some c => sweep M order D c (scale + GUARD) (unit_start z j k)
  | _, _ => None
  end.

Fixpoint apply_ends (M : model) (order : list (nat * mnode)) (stars zs : list nat) (D : domain) (z : nat) (scale : Z)
    (es : list (bool * nat * tree)) (l u : list Z) : option (list Z * list Z) :=
  match es with
  | [] => Some (l, u)
  | (side, j, t) :: es =>
      if (j <? length l)%nat then
        match walk M order stars (claim_margin M order zs z j scale (if side then 1 else -1)%Z) t D [] with
        | None => None
        | Some b =>
            let b := fshift b GUARD in
            if side then apply_ends M order stars zs D z scale es (set j (Z.max (nth j l 0%Z) b) l) u
            else apply_ends M order stars zs D z scale es l (set j (Z.min (nth j u 0%Z) (- b)) u)
        end
      else None
  end.

Lemma apply_ends_ok : forall M order stars zs D z scale hs, valid M hs -> in_order M order -> inside M D hs ->
  forall es l u l' u', inbox scale l u (nth z hs []) ->
  apply_ends M order stars zs D z scale es l u = Some (l', u') -> inbox scale l' u' (nth z hs []).
Proof.
  intros M order stars zs D z scale hs HM HO HD. induction es as [|[[side j] t] es IH]; intros l u l' u' Hb E; simpl in E.
  - injection E as <- <-. assumption.
  - destruct (j <? length l)%nat; [|discriminate].
    set (k := (if side then 1 else -1)%Z) in *.
    destruct (walk _ _ _ _ _ _ _) as [b|] eqn:Ew; [|discriminate].
    assert (B : IZR b * p2 (- (scale + GUARD)) <= IZR k * nth j (nth z hs []) 0).
    { refine (walk_ok M order stars (claim_margin M order zs z j scale k) hs
                (fun b => IZR b * p2 (- (scale + GUARD)) <= IZR k * nth j (nth z hs []) 0) HM HO _ _ t D [] b HD Ew).
      - intros a c L H. eapply Rle_trans; [apply IZR_scale_le; exact L | exact H].
      - intros D' p data m HD' Em. unfold claim_margin in Em.
        destruct (row_weights data); [|discriminate]. destruct (stated M zs p data) as [c|]; [|discriminate].
        exact (sweep_sound _ _ _ _ _ _ _ _ _ HM HD' HO (unit_start_value hs z j k) Em). }
    pose proof (fshift_le b GUARD (scale + GUARD)) as F. replace (scale + GUARD - GUARD)%Z with scale in F by lia.
    destruct side; unfold k in B; (eapply IH; [|exact E]).
    + apply inbox_set_low; [assumption|]. lra.
    + apply inbox_set_high; [assumption|]. rewrite opp_IZR. lra.
Qed.

Fixpoint run_claims (before : list nat) (nbits : Z) (cs : list claims) (rest : list kind) (M : model) : option (list kind * model) :=
  match cs with
  | [] => Some (rest, M)
  | c :: cs =>
      let z := claimed c in
      match advance before nbits z rest M with
      | None => None
      | Some (rest, M) =>
          match nth_error M z with
          | None => None
          | Some m =>
              let stars := filter (fun i => (i <? length M)%nat) before in
              let zs := filter (fun i => (i <? z)%nat) before in
              match apply_ends M (numbered M) stars zs (whole before M) z (sc m) (ends c) (lo m) (hi m) with
              | None => None
              | Some (l, u) => run_claims before nbits cs rest (replace_node z l u M)
              end
          end
      end
  end.

Lemma run_claims_ok : forall before nbits hs cs rest M rest' M', good rest M hs ->
  run_claims before nbits cs rest M = Some (rest', M') -> good rest' M' hs.
Proof.
  induction cs as [|c cs IH]; intros rest M rest' M' HG E; simpl in E.
  - injection E as <- <-. assumption.
  - destruct (advance _ _ _ _ _) as [[rest1 M1]|] eqn:E1; [|discriminate].
    destruct (advance_ok _ _ _ _ _ _ _ _ HG E1) as [HM1 HR1].
    destruct (nth_error M1 (claimed c)) as [m|] eqn:Em; [|discriminate].
    destruct (apply_ends _ _ _ _ _ _ _ _ _ _) as [[l u]|] eqn:Ea; [|discriminate].
    destruct (HM1 _ _ Em) as (Hb & _).
    pose proof (apply_ends_ok _ _ _ _ _ _ _ _ HM1 (numbered_ok M1) (whole_inside before M1 hs HM1) _ _ _ _ _ Hb Ea) as Hb'.
    apply (IH rest1 (replace_node (claimed c) l u M1) rest' M'); [|assumption]. split.
    + apply valid_replace; auto. intros m0 E0. rewrite Em in E0. injection E0 as <-. assumption.
    + rewrite replace_node_length. assumption.
Qed.

(** ** Trees of disjuncts *)
Fixpoint bars_of (unit : Z) (rows : list row) : option (list bar) :=
  match rows with
  | [] => Some []
  | r :: rows => match bar_of unit r, bars_of unit rows with Some b, Some bs => Some (b :: bs) | _, _ => None end
  end.
Fixpoint goal_of (unit : Z) (ds : list (list row)) (ids : list nat) : option (list (list bar)) :=
  match ids with
  | [] => Some []
  | i :: ids =>
      match nth_error ds i with
      | None => None
      | Some rows => match bars_of unit rows, goal_of unit ds ids with Some b, Some g => Some (b :: g) | _, _ => None end
      end
  end.

Lemma bars_of_ok : forall unit x y rows bars, Forall (row_holds x y) rows -> bars_of unit rows = Some bars ->
  Forall (bar_holds unit x y) bars.
Proof.
  intros unit x y rows bars H. revert bars. induction H as [|r rows Hr HR IH]; intros bars E; simpl in E.
  - injection E as <-. constructor.
  - destruct (bar_of unit r) as [b|] eqn:Eb; [|discriminate]. destruct (bars_of unit rows) as [bs|]; [|discriminate].
    injection E as <-. constructor; auto. eapply bar_of_ok; eauto.
Qed.

Lemma goal_of_ok : forall unit x y ds d i ids goal, nth_error ds i = Some d -> Forall (row_holds x y) d -> In i ids ->
  goal_of unit ds ids = Some goal -> exists bars, In bars goal /\ Forall (bar_holds unit x y) bars.
Proof.
  induction ids as [|k ids IH]; intros goal Ed Hd Hin E; simpl in E; [destruct Hin|].
  destruct (nth_error ds k) as [rows|] eqn:Ek; [|discriminate].
  destruct (bars_of unit rows) as [b|] eqn:Eb; [|discriminate].
  destruct (goal_of unit ds ids) as [g|] eqn:Eg; [|discriminate]. injection E as <-.
  destruct Hin as [->|Hin].
  - rewrite Ed in Ek. injection Ek as <-. exists b. split; [left; reflexivity|]. eapply bars_of_ok; eauto.
  - destruct (IH g Ed Hd Hin eq_refl) as (bars & H1 & H2). exists bars. split; [right|]; assumption.
Qed.

Fixpoint run_trees (M : model) (order : list (nat * mnode)) (before : list nat) (out : nat) (unit : Z) (D : domain)
    (ds : list (list row)) (ts : list (list nat * tree)) : option (list nat) :=
  match ts with
  | [] => Some []
  | (ids, t) :: ts =>
      match goal_of unit ds ids with
      | None => None
      | Some goal =>
          match walk M order before (goal_margin M order out unit before goal) t D [] with
          | None => None
          | Some m =>
              if (0 <? m)%Z then
                match run_trees M order before out unit D ds ts with None => None | Some done => Some (ids ++ done) end
              else None
          end
      end
  end.

Lemma run_trees_ok : forall M order before out unit D ds hs, valid M hs -> in_order M order -> inside M D hs ->
  forall i d, nth_error ds i = Some d -> Forall (row_holds (nth 0 hs []) (nth out hs [])) d ->
  forall ts done, run_trees M order before out unit D ds ts = Some done -> ~ In i done.
Proof.
  intros M order before out unit D ds hs HM HO HD i d Ed Hd. induction ts as [|[ids t] ts IH]; intros done E; simpl in E.
  - injection E as <-. simpl. tauto.
  - destruct (goal_of unit ds ids) as [goal|] eqn:Eg; [|discriminate].
    destruct (walk _ _ _ _ _ _ _) as [m|] eqn:Ew; [|discriminate].
    destruct (Z.ltb_spec 0 m) as [P|P]; [|discriminate].
    destruct (run_trees _ _ _ _ _ _ _ ts) as [done'|] eqn:Et; [|discriminate]. injection E as <-.
    rewrite in_app_iff. intros [Hin|Hin]; [|exact (IH done' eq_refl Hin)].
    pose proof (goal_of_ok unit _ _ ds d i ids goal Ed Hd Hin Eg) as Hgoal.
    assert (C : (m <= 0)%Z).
    { refine (walk_ok M order before (goal_margin M order out unit before goal) hs (fun m => (m <= 0)%Z) HM HO _ _ t D [] m HD Ew).
      - intros a b L H. lia.
      - intros D' p data m' HD' Em. unfold goal_margin in Em. destruct (stated M before p data) as [c|]; [|discriminate].
        eapply worst_ok; eauto. }
    lia.
Qed.

(** ** The checker *)
Definition input_node (g : region) : option mnode :=
  if well_formed (box_low g) && well_formed (box_high g) then
    let l := map (fun q => qfloor q (iscale g)) (box_low g) in
    let u := map (fun q => qceil q (iscale g)) (box_high g) in
    match room_of l u with None => None | Some r => Some (make_node KInput (iscale g) l u r) end
  else None.

Definition check_region (ks : list kind) (out : nat) (g : region) (c : certificate) : bool :=
  let before := arguments ks in
  match ks, input_node g with
  | KInput :: rest, Some m =>
      match run_claims before (bits c) (claim_list c) rest [m] with
      | None => false
      | Some (rest, M) =>
          match advance before (bits c) (length ks) rest M with
          | None => false
          | Some (_, M) =>
              match nth_error M out with
              | None => false
              | Some mo =>
                  match run_trees M (numbered M) before out (sc mo + GUARD) (whole before M) (disjuncts g) (trees c) with
                  | None => false
                  | Some done => forallb (fun i => existsb (Nat.eqb i) done) (seq 0 (length (disjuncts g)))
                  end
              end
          end
      end
  | _, _ => false
  end.

Definition prepare_network (net : network) : list kind := map rounded_node net.

(** One certificate per region. *)
Definition check (net : network) (out : nat) (gs : list region) (cs : list certificate) : bool :=
  let ks := prepare_network net in
  Nat.eqb (length gs) (length cs) && forallb (fun p => check_region ks out (fst p) (snd p)) (combine gs cs).

Lemma input_node_ok : forall g m hs, in_region g (nth 0 hs []) -> input_node g = Some m -> valid_node hs 0 m.
Proof.
  intros g m hs [L U]. unfold input_node.
  destruct (well_formed (box_low g)) eqn:W1; [|discriminate]. destruct (well_formed (box_high g)) eqn:W2; [|discriminate].
  simpl. destruct (room_of _ _); [|discriminate]. intro E. injection E as <-.
  split; [|split]; simpl; auto. apply both_inbox.
  - clear - L W1. unfold lowb. revert W1. induction L; intro W; simpl in *; constructor;
      apply andb_true_iff in W; destruct W as [D W]; auto.
    apply Z.ltb_lt in D. eapply Rle_trans; [apply qfloor_le; assumption|assumption].
  - clear - U W2. unfold upb. revert W2. induction U; intro W; simpl in *; constructor;
      apply andb_true_iff in W; destruct W as [D W]; auto.
    apply Z.ltb_lt in D. eapply Rle_trans; [eassumption|apply qceil_ge; assumption].
Qed.

Theorem check_region_sound : forall net out g c, check_region (prepare_network net) out g c = true ->
  forall hs, ~ counterexample net out g hs.
Proof.
  intros net out g c. unfold check_region. set (ks := prepare_network net).
  destruct ks as [|k rest] eqn:Ek; [discriminate|].
  destruct k; try discriminate.
  destruct (input_node g) as [m|] eqn:Em; [|discriminate].
  set (before := arguments (KInput :: rest)).
  destruct (run_claims _ _ _ _ _) as [[rest1 M1]|] eqn:E1; [|discriminate].
  destruct (advance _ _ _ _ _) as [[rest2 M2]|] eqn:E2; [|discriminate].
  destruct (nth_error M2 out) as [mo|] eqn:E3; [|discriminate].
  destruct (run_trees _ _ _ _ _ _ _ _) as [done|] eqn:E4; [|discriminate].
  intros Hall hs (HT & Hbox & d & Hin & Hd).
  assert (G0 : good rest [m] hs).
  { split.
    - intros i mi Ei. destruct i as [|[|i]]; simpl in Ei; try discriminate. injection Ei as <-.
      eapply input_node_ok; eauto.
    - intros i ki Ei. simpl. assert (Es : nth_error ks (S i) = Some ki) by (rewrite Ek; exact Ei).
      unfold ks, prepare_network in Es. rewrite nth_error_map in Es.
      destruct (nth_error net (S i)) as [ni|] eqn:En; [|discriminate]. simpl in Es. injection Es as <-.
      apply rounded_node_ok. apply HT. assumption. }
  pose proof (run_claims_ok _ _ _ _ _ _ _ _ G0 E1) as G1.
  destruct (advance_ok _ _ _ _ _ _ _ _ G1 E2) as [HM2 _].
  destruct (In_nth_error _ _ Hin) as [i Ei].
  apply (run_trees_ok _ _ _ _ _ _ _ hs HM2 (numbered_ok M2) (whole_inside before M2 hs HM2) i d Ei Hd _ _ E4).
  rewrite forallb_forall in Hall. specialize (Hall i).
  assert (Hi : In i (seq 0 (length (disjuncts g)))).
  { apply in_seq. split; [lia|]. simpl. apply nth_error_Some. congruence. }
  specialize (Hall Hi). rewrite existsb_exists in Hall. destruct Hall as (j & Hj & Eij).
  apply Nat.eqb_eq in Eij. subst j. assumption.
Qed.

(** What is accepted has no counterexample: no real input of the set reaches the condition, in exact arithmetic. *)
Theorem check_sound : forall net out gs cs, check net out gs cs = true ->
  forall g, In g gs -> forall hs, ~ counterexample net out g hs.
Proof.
  intros net out gs cs H g Hg hs. unfold check in H. apply andb_true_iff in H. destruct H as [L H].
  apply Nat.eqb_eq in L. rewrite forallb_forall in H.
  destruct (In_nth gs g {| box_low := []; box_high := []; iscale := 0; disjuncts := [] |} Hg) as (i & Hi & Ei).
  set (c0 := {| bits := 0%Z; claim_list := []; trees := [] |}).
  specialize (H (nth i (combine gs cs) (g, c0))).
  rewrite combine_nth in H by assumption.
  assert (E : nth i gs g = g) by (rewrite <- Ei at 2; apply nth_indep; assumption).
  apply (check_region_sound net out g (nth i cs c0)).
  rewrite E in H. simpl in H. apply H. rewrite <- E at 1. rewrite <- combine_nth by assumption.
  apply nth_In. rewrite combine_length, <- L, Nat.min_id. assumption.
Qed.
