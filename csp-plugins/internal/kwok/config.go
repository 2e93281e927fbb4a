package kwok

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/callers"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Config is the configuration of the plugin.
type Config struct {
	// Serving says where the janitor calls; without callers everybody may.
	callers.Serving
	// RebootTime is how long a machine has no power, and how long one that is
	// terminated is still there.
	RebootTime time.Duration `toml:"rebootTime" bounds:"at least 0s" flag:"reboot-time" usage:"how long a rebooting machine has no power, and one that is terminated is still there"`
	// Books is the file of everything that was asked and done; required.
	Books string `toml:"books" flag:"books" usage:"append-only file of all that was asked and done; also what a restarted plugin goes on from"`
	// BootIDDir holds <node>/boot_id of machines that have a folder.
	BootIDDir string `toml:"bootIDDir" flag:"boot-id-dir" usage:"folder where a reboot writes <node>/boot_id; empty writes none"`
	// RebootHook is run as HOOK NODE BOOTID when a machine comes up.
	RebootHook string `toml:"rebootHook" flag:"reboot-hook" usage:"program that is run with a node's name and its new boot id when its machine comes up"`
	// Faults is a JSON file that maps nodes (or *) to faults.
	Faults string `toml:"faults" flag:"faults" usage:"JSON file that maps a node or * to fail=CODE, hang, mute, stall or lie; the node's annotation goes first"`

	Kube kube.Config `toml:"kube"`
}

// Default is the configuration without a file; it lacks the books.
func Default() Config {
	return Config{Serving: callers.Serving{Listen: callers.Default().Listen}, RebootTime: 20 * time.Second}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate(), c.Serving.Validate()}
	if c.Books == "" {
		problems = append(problems, errors.New("books (--books) is empty"))
	}
	if c.RebootTime < 0 {
		problems = append(problems, fmt.Errorf("rebootTime (--reboot-time) %s is negative", c.RebootTime))
	}
	if (c.Audience == "") != (len(c.Callers) == 0) {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) belong together"))
	}
	return errors.Join(problems...)
}
