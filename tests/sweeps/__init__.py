"""The sweeps: every fault point of a scripted workload, by the thousand, until a budget of time is used up."""
