//! Graph to plan: schedule, lifetimes, storages, offsets.
