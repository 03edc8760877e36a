"""Imported by worker templates, so that every worker starts with core and all plugins in memory."""

from __future__ import annotations

import verifolio.attempt
import verifolio.exact
import verifolio.graph.enclosure
import verifolio.registry

verifolio.registry.installed()
