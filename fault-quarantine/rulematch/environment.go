package rulematch

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
)

// absentKey is how an evaluation fails on a key that a map does not have, such
// as a label that a node lacks or a metadata key that an event lacks: the rule
// does not hold then. Misspelt fields of the event do not get so far.
const absentKey = "no such key"

// eventShape is the event as expressions see it, with the types of its fields;
// it is what eventValue makes.
type eventShape struct {
	Version                 int64             `cel:"version"`
	Agent                   string            `cel:"agent"`
	ComponentClass          string            `cel:"componentClass"`
	CheckName               string            `cel:"checkName"`
	IsFatal                 bool              `cel:"isFatal"`
	IsHealthy               bool              `cel:"isHealthy"`
	Message                 string            `cel:"message"`
	ErrorCode               []string          `cel:"errorCode"`
	EntitiesImpacted        []entityShape     `cel:"entitiesImpacted"`
	Metadata                map[string]string `cel:"metadata"`
	NodeName                string            `cel:"nodeName"`
	ID                      string            `cel:"id"`
	GeneratedTimestamp      time.Time         `cel:"generatedTimestamp"`
	CustomRecommendedAction string            `cel:"customRecommendedAction"`
	RecommendedAction       int64             `cel:"recommendedAction"`
	RecommendedActionName   string            `cel:"recommendedActionName"`
	ProcessingStrategy      int64             `cel:"processingStrategy"`
	ProcessingStrategyName  string            `cel:"processingStrategyName"`
	QuarantineOverrides     *overrideShape    `cel:"quarantineOverrides"`
	DrainOverrides          *overrideShape    `cel:"drainOverrides"`
}

type entityShape struct {
	EntityType  string `cel:"entityType"`
	EntityValue string `cel:"entityValue"`
}

type overrideShape struct {
	Force bool `cel:"force"`
	Skip  bool `cel:"skip"`
}

// environments are two: expressions are checked against the types of the event,
// and evaluated on maps.
type environments struct{ typed, dynamic *cel.Env }

func newEnvironments() (e environments, err error) {
	dynamic := cel.Variable("event", cel.DynType)
	typed := cel.Variable("event", cel.ObjectType("rulematch.eventShape"))
	shapes := ext.NativeTypes(reflect.TypeFor[eventShape](), reflect.TypeFor[entityShape](), reflect.TypeFor[overrideShape](), ext.ParseStructTags(true))
	if e.dynamic, err = cel.NewEnv(dynamic, cel.Variable("node", cel.DynType), ext.Strings()); err != nil {
		return e, err
	}
	e.typed, err = cel.NewEnv(shapes, typed, cel.Variable("node", cel.DynType), ext.Strings())
	return e, err
}

// compile checks an expression and makes its program.
func (e environments) compile(expression string) (cel.Program, error) {
	checked, issues := e.typed.Compile(expression)
	if err := issues.Err(); err != nil {
		if strings.Contains(err.Error(), "undefined field") {
			return nil, fmt.Errorf("%w\n fields of an event: %s", err, strings.Join(fieldNames(reflect.TypeFor[eventShape]()), ", "))
		}
		return nil, err
	}
	if t := checked.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, fmt.Errorf("the result type is %s, must be bool", t)
	}
	ast, issues := e.dynamic.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	return e.dynamic.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
}

// fieldNames are the field names of a shape.
func fieldNames(shape reflect.Type) (names []string) {
	for field := range shape.Fields() {
		names = append(names, field.Tag.Get("cel"))
	}
	return names
}
