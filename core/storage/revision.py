"""Which answers on disk are still believed."""

from __future__ import annotations

# Raise this by one with every change after which an answer given before may be wrong: a mended proof (a bound, a
# relaxation, a cut, an import), a mended reading of properties, or a hash that took two questions for one. Proofs
# of an earlier revision are then not served again, and witnesses only after a replay. Files written before there
# were revisions count as 0.
SOUNDNESS_REVISION = 5
