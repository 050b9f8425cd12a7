"""Memory planning: size classes, liveness, in-place results, plans, pools, budgets and reports."""

from minfer_ir.memory.budget import BudgetError, Demand, budget_bytes, check_budget
from minfer_ir.memory.classes import class_bytes
from minfer_ir.memory.liveness import Copy
from minfer_ir.memory.plan import Interval, MemoryPlan, Placement, PlannedBuffer, Region, plan_memory
from minfer_ir.memory.pools import Pool, Regions
from minfer_ir.memory.report import MemoryReport
from minfer_ir.memory.window import PlanError

__all__ = [
    "BudgetError",
    "Copy",
    "Demand",
    "Interval",
    "MemoryPlan",
    "MemoryReport",
    "Placement",
    "PlanError",
    "PlannedBuffer",
    "Pool",
    "Region",
    "Regions",
    "budget_bytes",
    "check_budget",
    "class_bytes",
    "plan_memory",
]
