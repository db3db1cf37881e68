//! What the tests of the checker are made of: random graphs, plans from two planners that are too
//! simple to be wrong, damage, an oracle that executes plans, and the comparison of the two.

pub(crate) mod agree;
pub(crate) mod damage;
pub(crate) mod graphs;
pub(crate) mod oracle;
pub(crate) mod planner;
