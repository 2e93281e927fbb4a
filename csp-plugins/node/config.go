package main

import (
	"errors"
	"time"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config

	// Image has the program node-reboot; PullSecrets are the names of its Secrets.
	Image       string   `toml:"image" bounds:"not empty" flag:"image" usage:"Image of the Jobs, which contains /node-reboot: that of the plugin."`
	PullSecrets []string `toml:"imagePullSecrets" flag:"image-pull-secrets" usage:"Names of the Secrets with which nodes pull the image of the Jobs."`
	// StartTimeout is how long the kubelet has to start the Pod of a Job.
	StartTimeout time.Duration `toml:"startTimeout" bounds:"1s to 15m" flag:"start-timeout" usage:"Time within which the kubelet must start the Pod of a Job. After it the plugin deletes the Job and reports the node as unresponsive."`
	// AnswerTimeout is how long one call waits for the start.
	AnswerTimeout time.Duration `toml:"answerTimeout" bounds:"100ms to 1m" flag:"answer-timeout" usage:"Time that one call waits for the start of the Pod. After it the janitor asks again. It must be below the plugin timeout of the janitor."`
	// SystemdTimeout is how long systemd has to end the machine.
	SystemdTimeout time.Duration `toml:"systemdTimeout" bounds:"0s to 15m" flag:"systemd-timeout" usage:"Time that systemd has to shut the machine down. After it the Job reboots the machine by sysrq."`
}

// Default is the configuration without a file; it lacks certificates and the image.
func Default() Config {
	return Config{
		Config: cloud.Default(), StartTimeout: 2 * time.Minute, AnswerTimeout: 15 * time.Second, SystemdTimeout: 3 * time.Minute,
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Config.Validate()) }
