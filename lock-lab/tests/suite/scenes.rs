//! Each fault really has the effect that it claims, on real servers, and is over when it is healed.

mod connections;
mod ensembles;
mod members;
mod network;
mod nodes;
mod primaries;
mod residue;
mod rolling;
mod stage;
mod together;
