"""Imported by worker templates, so that every worker starts with core and what decides queries in memory."""

from __future__ import annotations

import verifolio.attack
import verifolio.attempt
import verifolio.exact
import verifolio.graph.enclosure
import verifolio.graph.module
import verifolio.onnx_import
import verifolio.registry
import verifolio.survey

for _cls in (*verifolio.registry.installed().verifiers, *verifolio.registry.installed().bounders):
    _cls.available()
