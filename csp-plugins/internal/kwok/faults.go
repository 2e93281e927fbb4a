package kwok

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
)

// FaultAnnotation on a simulated Node asks for a Fault at its next signals.
const FaultAnnotation = "nvsentinel.nvidia.com/simulated-reboot"

// FaultKind is what a provider can do wrong.
type FaultKind string

// Kinds of faults.
const (
	// NoFault reboots the machine.
	NoFault FaultKind = ""
	// Fail answers with a code and does nothing: "fail=ResourceExhausted".
	Fail FaultKind = "fail"
	// Hang does nothing and does not answer.
	Hang FaultKind = "hang"
	// Mute reboots the machine and does not answer.
	Mute FaultKind = "mute"
	// Stall takes the machine down for good.
	Stall FaultKind = "stall"
	// Lie says that all is well and does nothing.
	Lie FaultKind = "lie"
)

// Fault is one fault that was asked for.
type Fault struct {
	Kind FaultKind
	Code codes.Code
}

// ParseFault reads a fault: fail=CODE, hang, mute, stall, lie, or nothing.
func ParseFault(text string) (Fault, error) {
	kind, code, given := strings.Cut(text, "=")
	f := Fault{Kind: FaultKind(kind)}
	switch f.Kind {
	case NoFault, Hang, Mute, Stall, Lie:
		if given {
			return Fault{}, fmt.Errorf("fault %q: only fail has a code", text)
		}
		return f, nil
	case Fail:
		for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
			if c.String() == code {
				f.Code = c
				return f, nil
			}
		}
		return Fault{}, fmt.Errorf("fault %q: %q is no gRPC code such as ResourceExhausted", text, code)
	}
	return Fault{}, fmt.Errorf("fault %q is not fail=CODE, hang, mute, stall or lie", text)
}

// faultOf is the fault asked for by a Node's annotation, else by the control
// file for that node, else by the file for "*".
func faultOf(node *corev1.Node, file string) (Fault, error) {
	if text, ok := node.Annotations[FaultAnnotation]; ok {
		return ParseFault(text)
	}
	if file == "" {
		return Fault{}, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Fault{}, nil
	}
	if err != nil {
		return Fault{}, fmt.Errorf("reading the file of faults: %w", err)
	}
	faults := map[string]string{}
	if err := json.Unmarshal(b, &faults); err != nil {
		return Fault{}, fmt.Errorf("reading the file of faults: %w", err)
	}
	text, ok := faults[node.Name]
	if !ok {
		text = faults["*"]
	}
	return ParseFault(text)
}
