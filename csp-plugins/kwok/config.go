package main

import (
	"errors"
	"time"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Server

	// RebootTime is how long a machine has no power, and how long one that is
	// terminated is still there.
	RebootTime time.Duration `toml:"rebootTime" bounds:"at least 0s" flag:"reboot-time" usage:"Time that a simulated machine is off during a reboot, and time until a terminated machine is gone."`
	// JournalFile is the file that records every request and its result; required.
	JournalFile string `toml:"journalFile" bounds:"not empty" flag:"journal-file" usage:"Append-only file that records every request and its result. A restarted plugin resumes from it."`
	// BootIDDir holds <node>/boot_id of machines that have a folder.
	BootIDDir string `toml:"bootIDDir" flag:"boot-id-dir" usage:"Directory in which a reboot writes <node>/boot_id. Empty writes no file."`
	// RebootHook is run as HOOK NODE BOOTID when a machine comes up.
	RebootHook string `toml:"rebootHook" flag:"reboot-hook" usage:"Program that runs with the node name and the new boot ID as arguments after a machine has started. Empty runs none."`
	// Faults is a JSON file that maps nodes (or *) to faults.
	Faults string `toml:"faults" flag:"faults" usage:"JSON file that maps a node name, or * for all nodes, to an injected fault: fail=CODE, hang, mute, stall or lie. The annotation of a node takes precedence."`
}

// Default is the configuration without a file; it lacks the journal.
func Default() Config {
	return Config{Server: cloud.Server{Listen: ":9090"}, RebootTime: 20 * time.Second}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c), c.Server.Validate()}
	if (c.Audience == "") != (len(c.Callers) == 0) {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) must be set together"))
	}
	return errors.Join(problems...)
}
