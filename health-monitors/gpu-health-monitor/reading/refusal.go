package reading

import "fmt"

// Refusal is a watch that DCGM refused: what befalls its entity is not seen.
type Refusal struct {
	Entity Entity `json:"entity"`
	// Text is what DCGM said.
	Text string `json:"text,omitempty"`
}

// kinds are the names of kinds of entities.
var kinds = map[Kind]string{GPU: "GPU", Switch: "NVSWITCH", GPUInstance: "GPU_INSTANCE", ComputeInstance: "COMPUTE_INSTANCE"}

// String is the kind's name in events and metrics.
func (k Kind) String() string {
	if name, ok := kinds[k]; ok {
		return name
	}
	return fmt.Sprintf("DCGM_ENTITY_%d", int(k))
}
