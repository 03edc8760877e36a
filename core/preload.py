"""Imported by worker templates, so that every worker starts with core and all plugins in memory."""

from __future__ import annotations

import verifolio.attempt
import verifolio.exact
import verifolio.graph.enclosure
import verifolio.graph.module
import verifolio.onnx_import
import verifolio.registry
import verifolio.survey

verifolio.registry.installed()
