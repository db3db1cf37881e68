//! The judge: simulates a plan's memory against the original graph; shares no code with the planner.
