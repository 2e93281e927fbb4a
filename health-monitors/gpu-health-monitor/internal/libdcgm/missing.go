//go:build !cgo

package libdcgm

import (
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
)

// ErrMissing is why this binary cannot talk to DCGM; nil where it can.
var ErrMissing = errors.New("this binary was built without cgo and cannot load the DCGM library: build it with CGO_ENABLED=1 and a C compiler")

// New fails in a binary without cgo.
func New() (worker.Library, error) { return nil, ErrMissing }
