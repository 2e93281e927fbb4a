package policy

import (
	"fmt"
	"reflect"
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
)

// kubernetes is the part of Kubernetes' own CEL libraries that CEL's extensions
// lack, under the same names: quantity, find, and sums and extremes of lists.
// The library of k8s.io/apiserver is bound to another module of cel-go.
// Source: kubernetes.io/docs/reference/using-api/cel.
type kubernetes struct{}

// quantityType is the type of quantity().
var quantityType = cel.ObjectType("kubernetes.Quantity", traits.ComparerType)

// quantity is a resource quantity.
type quantity struct{ resource.Quantity }

// ConvertToNative gives the quantity itself.
func (q quantity) ConvertToNative(t reflect.Type) (any, error) {
	if reflect.TypeFor[resource.Quantity]().AssignableTo(t) {
		return q.Quantity, nil
	}
	return nil, fmt.Errorf("converting a quantity to %v", t)
}

// ConvertToType knows its own type and strings.
func (q quantity) ConvertToType(t ref.Type) ref.Val {
	switch t.TypeName() {
	case quantityType.TypeName():
		return q
	case types.StringType.TypeName():
		return types.String(q.String())
	}
	return types.NewErr("type conversion error from quantity to %s", t.TypeName())
}

// Equal compares amounts.
func (q quantity) Equal(other ref.Val) ref.Val {
	o, ok := other.(quantity)
	return types.Bool(ok && q.Cmp(o.Quantity) == 0)
}

// Type is quantityType.
func (q quantity) Type() ref.Type { return quantityType }

// Value is the quantity itself.
func (q quantity) Value() any { return q.Quantity }

// CompileOptions declares the functions.
func (kubernetes) CompileOptions() []cel.EnvOption {
	options := []cel.EnvOption{
		cel.Function("quantity", cel.Overload("kom_quantity", []*cel.Type{cel.StringType}, quantityType, cel.UnaryBinding(parseQuantity))),
		cel.Function("isQuantity", cel.Overload("kom_is_quantity", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			return types.Bool(!types.IsError(parseQuantity(v)))
		}))),
		cel.Function("find", cel.MemberOverload("kom_find", []*cel.Type{cel.StringType, cel.StringType}, cel.StringType, cel.BinaryBinding(find))),
		cel.Function("findAll", cel.MemberOverload("kom_find_all", []*cel.Type{cel.StringType, cel.StringType}, cel.ListType(cel.StringType), cel.BinaryBinding(findAll))),
	}
	return append(append(options, quantityFunctions()...), listFunctions()...)
}

// ProgramOptions are none.
func (kubernetes) ProgramOptions() []cel.ProgramOption { return nil }

func parseQuantity(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	q, err := resource.ParseQuantity(string(s))
	if err != nil {
		return types.WrapErr(fmt.Errorf("quantity(%q): %w", string(s), err))
	}
	return quantity{q}
}

func quantityFunctions() []cel.EnvOption {
	unary := func(name string, out *cel.Type, f func(q quantity) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("kom_quantity_"+name, []*cel.Type{quantityType}, out, cel.UnaryBinding(func(v ref.Val) ref.Val {
			q, ok := v.(quantity)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return f(q)
		})))
	}
	binary := func(name string, out *cel.Type, f func(a, b quantity) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("kom_quantity_"+name, []*cel.Type{quantityType, quantityType}, out, cel.BinaryBinding(func(l, r ref.Val) ref.Val {
			a, ok1 := l.(quantity)
			b, ok2 := r.(quantity)
			if !ok1 || !ok2 {
				return types.MaybeNoSuchOverloadErr(l)
			}
			return f(a, b)
		})))
	}
	return []cel.EnvOption{
		unary("sign", cel.IntType, func(q quantity) ref.Val { return types.Int(q.Sign()) }),
		unary("isInteger", cel.BoolType, func(q quantity) ref.Val { _, ok := q.AsInt64(); return types.Bool(ok) }),
		unary("asInteger", cel.IntType, func(q quantity) ref.Val {
			n, ok := q.AsInt64()
			if !ok {
				return types.NewErr("quantity %s is not a 64-bit integer", q.String())
			}
			return types.Int(n)
		}),
		unary("asApproximateFloat", cel.DoubleType, func(q quantity) ref.Val { return types.Double(q.AsApproximateFloat64()) }),
		binary("compareTo", cel.IntType, func(a, b quantity) ref.Val { return types.Int(a.Cmp(b.Quantity)) }),
		binary("isLessThan", cel.BoolType, func(a, b quantity) ref.Val { return types.Bool(a.Cmp(b.Quantity) < 0) }),
		binary("isGreaterThan", cel.BoolType, func(a, b quantity) ref.Val { return types.Bool(a.Cmp(b.Quantity) > 0) }),
		binary("add", quantityType, func(a, b quantity) ref.Val {
			sum := a.DeepCopy()
			sum.Add(b.Quantity)
			return quantity{sum}
		}),
		binary("sub", quantityType, func(a, b quantity) ref.Val {
			rest := a.DeepCopy()
			rest.Sub(b.Quantity)
			return quantity{rest}
		}),
	}
}

func find(text, pattern ref.Val) ref.Val {
	re, err := regexp.Compile(string(pattern.(types.String)))
	if err != nil {
		return types.WrapErr(fmt.Errorf("find: %w", err))
	}
	return types.String(re.FindString(string(text.(types.String))))
}

func findAll(text, pattern ref.Val) ref.Val {
	re, err := regexp.Compile(string(pattern.(types.String)))
	if err != nil {
		return types.WrapErr(fmt.Errorf("findAll: %w", err))
	}
	return types.DefaultTypeAdapter.NativeToValue(re.FindAllString(string(text.(types.String)), -1))
}
