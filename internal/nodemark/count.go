package nodemark

// CountLabels are the keys of the labels that count the devices of one class:
// how many a node has, how many it should have, and among which nodes that was
// found. Written by labeler.
type CountLabels struct{ Current, Expected, Group string }

// CountLabelsOf are those of a class, "gpu" or "nic" for example.
func CountLabelsOf(class string) CountLabels {
	prefix := "nvsentinel.dgxc.nvidia.com/" + class + ".count."
	return CountLabels{Current: prefix + "current", Expected: prefix + "expected", Group: prefix + "group"}
}
