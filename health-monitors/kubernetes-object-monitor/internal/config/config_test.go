package config

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/daemon"
)

var _ daemon.Listening = Config{}

func TestTheDefaultsAreThoseOfTheADR(t *testing.T) {
	if err := Default.Validate(); err != nil {
		t.Error(err)
	}
	metrics, probes := Default.Addresses()
	if Default.Resync != 5*time.Minute || Default.Workers != 10 || metrics != ":8080" || probes != ":8081" ||
		Default.Policies != "/etc/nvsentinel/config/policies.toml" {
		t.Errorf("%+v", Default)
	}
}

func TestEverythingWrongIsNamed(t *testing.T) {
	bad := Default
	bad.Policies, bad.State, bad.Socket, bad.Resync, bad.Workers, bad.Strategy = "", "", "", 0, 0, "STORE_ONLY"
	err := bad.Validate()
	for _, flag := range []string{"--policy-config-path", "--state-config-map", "--platform-connector-socket", "--resync-period", "--max-concurrent-reconciles", "--processingStrategy"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not in %v", flag, err)
		}
	}
}
