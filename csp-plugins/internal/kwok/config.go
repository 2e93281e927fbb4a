package kwok

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// Config is the configuration of the plugin.
type Config struct {
	// Listen is the host:port or unix:///path the janitor calls.
	Listen string `toml:"listen" flag:"listen" usage:"host:port or unix:///path that the janitor calls"`
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

	// CertFile, KeyFile and ClientCAFile make the plugin speak TLS.
	CertFile     string `toml:"certFile" flag:"tls-cert-file" usage:"PEM file of the plugin's certificate, read again for every connection; empty speaks plain text"`
	KeyFile      string `toml:"keyFile" flag:"tls-key-file" usage:"PEM file of the key of the plugin's certificate"`
	ClientCAFile string `toml:"clientCAFile" flag:"tls-client-ca-file" usage:"PEM file of the authorities of the callers' certificates; empty asks for none"`
	// Audience and Callers make the plugin verify its callers.
	Audience string   `toml:"audience" flag:"audience" usage:"audience that the callers' service-account tokens must be meant for"`
	Callers  []string `toml:"callers" flag:"callers" usage:"identities that may call, for example system:serviceaccount:nvsentinel:janitor; empty admits everybody"`

	Kube kube.Config `toml:"kube"`
}

// Default is the configuration without a file; it lacks the books.
func Default() Config { return Config{Listen: ":9090", RebootTime: 20 * time.Second} }

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate()}
	if c.Listen == "" {
		problems = append(problems, errors.New("listen (--listen) is empty"))
	}
	if c.Books == "" {
		problems = append(problems, errors.New("books (--books) is empty"))
	}
	if c.RebootTime < 0 {
		problems = append(problems, fmt.Errorf("rebootTime (--reboot-time) %s is negative", c.RebootTime))
	}
	if (c.CertFile == "") != (c.KeyFile == "") || c.ClientCAFile != "" && c.CertFile == "" {
		problems = append(problems, errors.New("certFile (--tls-cert-file) and keyFile (--tls-key-file) belong together, and clientCAFile (--tls-client-ca-file) needs them"))
	}
	if (c.Audience == "") != (len(c.Callers) == 0) {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) belong together"))
	}
	return errors.Join(problems...)
}
