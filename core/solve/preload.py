"""Imported by worker templates, so that every worker starts with core and what decides queries in memory."""

from __future__ import annotations

import verifolio.attacks
import verifolio.graph.enclosure
import verifolio.graph.exact
import verifolio.graph.module
import verifolio.onnx_import
import verifolio.plugin.manager
import verifolio.solve.attempt
import verifolio.solve.survey

for _cls in (
    *verifolio.plugin.manager.current_plugins().verifiers,
    *verifolio.plugin.manager.current_plugins().bounders,
):
    _cls.available()
