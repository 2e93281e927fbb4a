package nodemark

// CanaryAnnotation is what a person asks the Node's connector for a canary with:
// an event for the record only that goes the whole way from the connector's own
// front door. Its value is the event's id, a UUID of version 7, which says when it
// was asked for.
const CanaryAnnotation = "canary.nvsentinel.dgxc.nvidia.com/event"
