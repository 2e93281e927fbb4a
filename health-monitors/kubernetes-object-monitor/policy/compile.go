package policy

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names that expressions know, beside those of the libraries.
const (
	resourceName = "resource"
	nowName      = "now"
	lookupName   = "lookup"
	flipsName    = "@flips" // no expression can use this name
)

// Bounds of an expression and of one evaluation of it.
const (
	maxExpression = 16 << 10
	costLimit     = 1_000_000
	checkEvery    = 100 // steps of a loop between two looks for an interruption
)

// program is one compiled expression.
type program struct {
	cel.Program
	reads []reading
}

// environment is what every expression can use: the resource, the time, lookup,
// CEL's own extensions, and the functions of Kubernetes' CEL.
func environment(find Finder) (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable(resourceName, cel.DynType), cel.Variable(nowName, cel.TimestampType),
		cel.Macros(cel.GlobalMacro(operators.Has, 1, expandHas)), cel.OptionalTypes(),
		ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(), ext.Encoders(), ext.Bindings(), ext.TwoVarComprehensions(), ext.Network(),
		cel.Lib(kubernetes{}), lookup(find), cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(50),
	)
}

// expandHas makes has() take a literal key too, as in has(labels['a/b']), which
// is the only way to ask for a key that is no identifier.
func expandHas(eh cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	switch e := args[0]; e.Kind() {
	case ast.SelectKind:
		return eh.NewPresenceTest(e.AsSelect().Operand(), e.AsSelect().FieldName()), nil
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() == operators.Index && len(call.Args()) == 2 {
			if key, ok := literal(call.Args()[1]); ok {
				return eh.NewPresenceTest(call.Args()[0], key), nil
			}
		}
	default:
	}
	return nil, eh.NewError(args[0].ID(), "has() takes a field or a literal key: has(a.b), has(a['b/c'])")
}

// errLookup marks an evaluation that failed since a lookup had no answer.
var errLookup = errors.New("lookup returned no result")

func lookup(find Finder) cel.EnvOption {
	s := cel.StringType
	return cel.Function(lookupName, cel.Overload("lookup_string_string_string_string", []*cel.Type{s, s, s, s}, cel.DynType,
		cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			text := make([]string, len(args))
			for i, a := range args {
				v, ok := a.(types.String)
				if !ok {
					return types.MaybeNoSuchOverloadErr(a)
				}
				text[i] = string(v)
			}
			gv, err := schema.ParseGroupVersion(text[0])
			if err != nil {
				return types.WrapErr(fmt.Errorf("%w: %w", errLookup, err))
			}
			object, err := find.Find(gv.WithKind(text[1]), text[2], text[3])
			if err != nil {
				return types.WrapErr(fmt.Errorf("%w: %w", errLookup, err))
			}
			if object == nil {
				return types.NullValue
			}
			return types.DefaultTypeAdapter.NativeToValue(object)
		})))
}

// compile checks an expression and prepares it. The errors of CEL name line and
// column within the expression.
func compile(env *cel.Env, text string, want *cel.Type) (*program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil // problems reports it
	}
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := checked.OutputType(); !t.IsExactType(want) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("1:1: the expression returns %s, not %s", t, want)
	}
	tree := checked.NativeRep().Expr()
	reads, err := readings(tree)
	if err != nil {
		return nil, err
	}
	p, err := env.Program(checked, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(checkEvery),
		cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(watchAges(ages(tree))))
	if err != nil {
		return nil, err
	}
	return &program{Program: p, reads: reads}, nil
}
