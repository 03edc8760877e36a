"""Imported by templates of light workers: what decides a query of a small network; nothing here imports torch."""

from __future__ import annotations

import verifolio.graph.enclosure
import verifolio.graph.exact
import verifolio.onnx_import.check
import verifolio.plugin.manager
import verifolio.solve.attempt

for _cls in verifolio.plugin.manager.current_plugins().verifiers:
    _cls.available()
