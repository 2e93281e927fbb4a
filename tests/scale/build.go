package scale

import (
	"context"
	"io"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// Build builds the services and the connectors of many nodes in one process into dir,
// with further flags of go build. It returns the folder of the services, which is
// another where they are built already, and the path of the connectors' program.
func Build(ctx context.Context, root, dir string, progress io.Writer, flags ...string) (bin, connectors string, err error) {
	if bin, err = fleet.Build(ctx, root, dir, progress, flags...); err != nil {
		return "", "", err
	}
	return bin, filepath.Join(dir, "fleet"), gobuild.Builder{Progress: progress}.Build(ctx, gobuild.Batch{
		Title: "connectors", Dir: root, Env: []string{"CGO_ENABLED=0"}, Out: dir, Flags: append([]string{"-gcflags=all=-dwarf=false", "-ldflags=-s -w"}, flags...),
		Programs: []gobuild.Program{{Name: "fleet", Package: "./platform-connectors/internal/fleet"}},
	})
}
