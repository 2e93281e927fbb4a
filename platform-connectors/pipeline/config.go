// Package pipeline decides what becomes of an accepted event on its way to the
// sinks: overrides by CEL rules, labels of its node as metadata, and faults that
// wait to be confirmed. It does no I/O and reads no clock. Names and keys of its stages are
// those of the predecessor (NVIDIA/NVSentinel, configuration of its connectors).
package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Names of stages.
const (
	StageMetadata  = "MetadataAugmentor"
	StageOverrides = "OverrideTransformer"
)

// StageRetired is a stage of earlier versions. It has no effect: a connector that
// refused it would take no events, and repeats are counted without it.
const StageRetired = "Deduplicator"

// Order is the file that names the stages.
type Order struct {
	Stages []Stage `toml:"pipeline"`
}

// Stage is one step, in the order of the list.
type Stage struct {
	Name    string `toml:"name"`
	Enabled bool   `toml:"enabled"`
	// Config is the stage's own file, absolute or beside the one that names it.
	Config string `toml:"config"`
}

// Metadata is the file of the MetadataAugmentor.
type Metadata struct {
	// CacheSize and CacheTTL bound the cache of Nodes other than the connector's
	// own, which is watched.
	CacheSize int           `toml:"cacheSize"`
	CacheTTL  time.Duration `toml:"cacheTTL"`
	// AllowedLabels are the labels that are added.
	AllowedLabels []string `toml:"allowedLabels"`
}

// Overrides is the file of the OverrideTransformer.
type Overrides struct {
	Enabled bool `toml:"enabled"`
	// Rules are tried in order; the first that matches changes the event.
	Rules []Rule `toml:"rules"`
}

// Rule changes the events for which When holds.
type Rule struct {
	Name     string   `toml:"name"`
	When     string   `toml:"when"`
	Override Override `toml:"override"`
}

// Override is what a rule changes; what is not given stays.
type Override struct {
	IsFatal                 *bool  `toml:"isFatal"`
	IsHealthy               *bool  `toml:"isHealthy"`
	RecommendedAction       string `toml:"recommendedAction"`
	CustomRecommendedAction string `toml:"customRecommendedAction"`
	ProcessingStrategy      string `toml:"processingStrategy"`
}

// Config is a whole pipeline.
type Config struct {
	// Stages are the enabled ones, in order.
	Stages []string
	// Retired is true if StageRetired is enabled.
	Retired   bool
	Metadata  Metadata
	Overrides Overrides
	// Confirmation holds faults until a second signal.
	Confirmation Confirmation
	// ClusterWide are agents whose events do not go through a node's spool.
	ClusterWide []string
	// PersistOnlyToProcess permits rules to make PROCESS of an event that its
	// publisher wants for the record only.
	PersistOnlyToProcess bool
}

// Default is the configuration of empty files of the stages, without any stage.
func Default() Config {
	return Config{
		Metadata:  Metadata{CacheSize: 50, CacheTTL: time.Hour},
		Overrides: Overrides{Enabled: true},
	}
}

// Validate joins everything that is wrong, but the rules' expressions.
func (c Config) Validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for _, s := range c.Stages {
		if !slices.Contains([]string{StageMetadata, StageOverrides, StageConfirmation}, s) {
			problem("pipeline: stage %q is not %s, %s or %s", s, StageMetadata, StageOverrides, StageConfirmation)
		}
		if seen[s] {
			problem("pipeline: stage %s is a duplicate", s)
		}
		if s == StageOverrides && seen[StageConfirmation] {
			problem("pipeline: stage %s must come before %s, otherwise faults that a rule changes to PROCESS are not confirmed", s, StageConfirmation)
		}
		seen[s] = true
	}
	if seen[StageMetadata] && (c.Metadata.CacheSize <= 0 || c.Metadata.CacheTTL <= 0) {
		problem("%s: cacheSize %d and cacheTTL %s must be positive", StageMetadata, c.Metadata.CacheSize, c.Metadata.CacheTTL)
	}
	if err := c.Confirmation.validate(); err != nil {
		problems = append(problems, err)
	}
	for i, r := range c.Overrides.Rules {
		if err := errors.Join(r.validate(), c.permits(r)); err != nil {
			problem("%s: rules[%d] (%q): %w", StageOverrides, i, r.Name, err)
		}
	}
	return errors.Join(problems...)
}

// permits refuses a rule that makes PROCESS of an event that its publisher wants for the
// record only: the publisher decides that, and a rule that is meant for something else must
// not change it as a side effect.
func (c Config) permits(r Rule) error {
	if c.PersistOnlyToProcess || r.Override.ProcessingStrategy != string(record.Process) {
		return nil
	}
	return errors.New("override.processingStrategy = PROCESS would act on events that the publisher reports as PERSIST_ONLY: " +
		"switch the publisher to PROCESS, or allow it with --allow-persist-only-to-process")
}

func (r Rule) validate() error {
	var problems []error
	o := r.Override
	if r.Name == "" {
		problems = append(problems, errors.New("name is empty"))
	}
	if o == (Override{}) {
		problems = append(problems, errors.New("override changes nothing"))
	}
	var action record.Action
	if o.RecommendedAction != "" {
		var err error
		if action, err = record.ParseAction(o.RecommendedAction); err != nil {
			problems = append(problems, fmt.Errorf("override.recommendedAction: %w", err))
		}
	}
	if (action == record.ActionCustom) != (o.CustomRecommendedAction != "") {
		problems = append(problems, errors.New("override.customRecommendedAction requires recommendedAction = CUSTOM, and CUSTOM requires it"))
	}
	if o.ProcessingStrategy != "" {
		if _, err := record.ParseStrategy(o.ProcessingStrategy); err != nil {
			problems = append(problems, fmt.Errorf("override.processingStrategy: %w", err))
		}
	}
	return errors.Join(problems...)
}
