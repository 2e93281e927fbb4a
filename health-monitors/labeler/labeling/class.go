package labeling

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Names that expressions know.
const (
	nodeName   = "node"
	slicesName = "resourceSlices"
)

// Bounds of an expression and of one evaluation of it.
const (
	maxExpression = 16 << 10
	costLimit     = 1_000_000
)

// Class is one class of devices. It is safe for concurrent use.
type Class struct {
	Name   string
	Labels nodemark.CountLabels
	// GroupBy are the labels by whose values nodes are grouped.
	GroupBy []string
	// Overrides set what to expect of some nodes; the first that matches counts.
	Overrides []Override

	count  cel.Program
	slices bool
}

// Override is what to expect of the nodes with these labels.
type Override struct {
	MatchLabels map[string]string
	Count       int
}

func (o Override) matches(labels map[string]string) bool {
	for key, value := range o.MatchLabels {
		if is, there := labels[key]; !there || is != value {
			return false
		}
	}
	return true
}

// ReadsSlices reports whether the class's expression reads ResourceSlices.
func (c Class) ReadsSlices() bool { return c.slices }

// Group names the group of a Node; empty if it lacks one of the labels. The name is
// a label's value.
func (c Class) Group(labels map[string]string) string {
	sum := sha256.New()
	for _, key := range c.GroupBy {
		value := labels[key]
		if value == "" {
			return ""
		}
		fmt.Fprintf(sum, "%q=%q,", key, value)
	}
	return hex.EncodeToString(sum.Sum(nil))[:8]
}

// ErrNoSource means that the Node reports nothing about devices of the class.
var ErrNoSource = errors.New("the node has no information about devices of this class")

// Count evaluates the class's expression on a Node and its ResourceSlices, both as
// decoded JSON. It returns ErrNoSource for null and for optional.none().
func (c Class) Count(node map[string]any, resourceSlices []any) (int, error) {
	value, _, err := c.count.Eval(map[string]any{nodeName: numbers(node), slicesName: resourceSlices})
	if err != nil {
		return 0, err
	}
	if o, ok := value.(*types.Optional); ok {
		if !o.HasValue() {
			return 0, ErrNoSource
		}
		value = o.GetValue()
	}
	if value == types.NullValue {
		return 0, ErrNoSource
	}
	n, ok := value.(types.Int)
	if !ok {
		return 0, fmt.Errorf("the expression returned %s, not int", value.Type())
	}
	if n < 0 || n > MaxCount {
		return 0, fmt.Errorf("the expression returned %d, use 0 to %d", n, MaxCount)
	}
	return int(n), nil
}

// numbers is the Node with the whole numbers among its labels and resources as
// numbers, as the files of such classes expect them.
func numbers(node map[string]any) map[string]any {
	return replace(replace(replace(node, "metadata", "labels"), "status", "allocatable"), "status", "capacity")
}

func replace(node map[string]any, outer, inner string) map[string]any {
	parent, _ := node[outer].(map[string]any)
	texts, ok := parent[inner].(map[string]any)
	if !ok {
		return node
	}
	values := make(map[string]any, len(texts))
	for key, value := range texts {
		values[key] = value
		if text, ok := value.(string); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
				values[key] = n
			}
		}
	}
	return with(node, outer, with(parent, inner, values))
}

func with(m map[string]any, key string, value any) map[string]any {
	out := maps.Clone(m)
	out[key] = value
	return out
}

// environment is what every expression can use.
func environment() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable(nodeName, cel.DynType), cel.Variable(slicesName, cel.ListType(cel.DynType)), cel.OptionalTypes(),
		ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(), ext.Bindings(),
		cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(50),
		cel.Function("sum", cel.Overload("labeler_sum", []*cel.Type{cel.ListType(cel.DynType)}, cel.IntType, cel.UnaryBinding(sum))),
	)
}

// sum adds whole numbers; that of none is 0.
func sum(v ref.Val) ref.Val {
	list, ok := v.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var total ref.Val = types.IntZero
	for it := list.Iterator(); it.HasNext() == types.True; {
		n, ok := it.Next().(types.Int)
		if !ok {
			return types.NewErr("sum() requires whole numbers")
		}
		if total = n.Add(total); types.IsError(total) {
			return total
		}
	}
	return total
}

// compile checks and prepares the expression of a class.
func (c *Class) compile(env *cel.Env, text string) error {
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return err
	}
	switch t := checked.OutputType(); t.Kind() {
	case types.IntKind, types.DynKind, types.OpaqueKind, types.NullTypeKind:
	default:
		return fmt.Errorf("the expression returns %s, not int", t)
	}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		c.slices = c.slices || e.Kind() == ast.IdentKind && e.AsIdent() == slicesName
	}))
	p, err := env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	c.count = p
	return err
}
