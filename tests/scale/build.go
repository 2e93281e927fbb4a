package scale

import (
	"context"
	"io"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/programs"
)

// Build builds the services and the connectors of many nodes in one process into dir,
// with further flags of go build. It returns the folder of the services, which is
// another where they are built already, and the path of the connectors' program.
func Build(ctx context.Context, root, dir string, progress io.Writer, flags ...string) (bin, connectors string, err error) {
	if bin, err = fleet.Build(ctx, root, dir, progress, flags...); err != nil {
		return "", "", err
	}
	many := programs.Connectors(root, dir)
	many.Flags = programs.Flags(flags...)
	return bin, filepath.Join(dir, "fleet"), gobuild.Builder{Progress: progress}.Build(ctx, many)
}
