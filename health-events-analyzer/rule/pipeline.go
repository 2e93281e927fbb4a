package rule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// pipelineKeys are keys of rules in the form of aggregation pipelines.
var pipelineKeys = []string{"stage", "recommended_action", "evaluate_rule", "processing_strategy"}

// equivalents are the keys that replace a pipeline's stages and operators, in the order in
// which they are named.
var equivalents = []struct{ operator, here string }{
	{"this.", "values of the triggering event: by"},
	{"$match", "when, of, window"},
	{"$count", "count"},
	{"$addToSet", "distinct"},
	{"$setWindowFields", "bursts"},
	{"$lookup", "unless"},
	{"$arrayToObject", "register"},
}

// refusePipelines refuses a rule file in the form of aggregation pipelines and names the
// equivalent keys. What cannot be decoded is left to the strict reading.
func refusePipelines(file string, data []byte) error {
	var loose struct {
		Rules []map[string]any `toml:"rules"`
	}
	if _, err := toml.Decode(string(data), &loose); err != nil {
		return nil //nolint:nilerr // the strict reading says what is wrong
	}
	var problems []error
	for i, r := range loose.Rules {
		var keys []string
		for _, k := range pipelineKeys {
			if _, given := r[k]; given {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			problems = append(problems, fmt.Errorf("%s: rules[%d] (%q): the keys %s define an aggregation pipeline, "+
				"which differs between stores and is not supported: %s (docs/tasks/detect-patterns.md compares both forms)",
				file, i, text(r["name"]), strings.Join(keys, ", "), equivalent(r)))
		}
	}
	return errors.Join(problems...)
}

// equivalent is the built-in rule of the same name, or a word for each stage.
func equivalent(r map[string]any) string {
	name := text(r["name"])
	if slices.ContainsFunc(Default(), func(d Rule) bool { return d.Name == name }) {
		return fmt.Sprintf("the built-in rule %q is equivalent: copy it from rules.toml and set its numbers", name)
	}
	pipeline := fmt.Sprint(r["stage"])
	words := []string{"recommended_action is action, evaluate_rule is enabled, processing_strategy is processingStrategy"}
	for _, e := range equivalents {
		if strings.Contains(pipeline, e.operator) {
			words = append(words, e.operator+" is "+e.here)
		}
	}
	return "the equivalent keys are: " + strings.Join(words, "; ")
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
