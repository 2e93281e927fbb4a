//go:build !cgo

package nvml

import (
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
)

// Missing returns why this program cannot ask the driver: it was built without cgo.
func Missing() error {
	return errors.New("this binary was built without cgo and cannot load libnvidia-ml: build it with CGO_ENABLED=1")
}

// Read is Missing's error.
func Read(string) (inventory.Facts, error) { return inventory.Facts{}, Missing() }
