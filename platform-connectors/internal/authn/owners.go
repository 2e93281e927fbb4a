package authn

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

// ownersVersion is the version of the file's shape.
const ownersVersion = 1

// OwnersFile keeps what was learned of agents and checks in a file. It is safe for
// concurrent use.
type OwnersFile struct {
	path string

	mu     sync.Mutex
	owners authz.Owners
}

// ownersDocument is the file's shape.
type ownersDocument struct {
	Version int `json:"version"`
	authz.Owners
}

// OpenOwners reads the file at path; without one nothing is known yet. A file
// that cannot be decoded is set aside, with an error in the log: names are
// learned again, and nothing is refused for it.
func OpenOwners(path string, log *slog.Logger) (*OwnersFile, error) {
	o := &OwnersFile{path: path}
	var file ownersDocument
	_, err := durable.Load(path, durable.Versions{Oldest: ownersVersion, Newest: ownersVersion}, &file)
	if err != nil && !errors.Is(err, durable.ErrDamaged) {
		return nil, err
	}
	if err != nil {
		log.Error("the owners of checks cannot be read; they are learned again", "file", path, "error", err)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, fmt.Errorf("setting the damaged owners of checks aside: %w", err)
		}
		return o, nil
	}
	o.owners = file.Owners
	return o, nil
}

// Change lets ask decide on the owners and note in them what it learns. What was
// learned is durable when Change returns nil; ask's error forgets it.
func (o *OwnersFile) Change(ask func(*authz.Owners) (learned bool, err error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.owners
	learned, err := ask(&next)
	if err != nil || !learned {
		return err
	}
	if _, err := durable.Save(o.path, ownersDocument{ownersVersion, next}); err != nil {
		return denied(codes.Unavailable, reasonOwners, "the owner of a new check could not be kept on disk, send again: %v", err)
	}
	o.owners = next
	return nil
}
