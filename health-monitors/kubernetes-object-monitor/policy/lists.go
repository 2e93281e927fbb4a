package policy

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// listFunctions are those of Kubernetes' CEL on lists: sum, min, max, isSorted,
// indexOf and lastIndexOf.
func listFunctions() []cel.EnvOption {
	list := cel.ListType(cel.DynType)
	fold := func(name string, out *cel.Type, f func(all []ref.Val) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("kom_list_"+name, []*cel.Type{list}, out, cel.UnaryBinding(func(v ref.Val) ref.Val {
			return f(elements(v))
		})))
	}
	search := func(name string, f func(all []ref.Val, x ref.Val) int) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("kom_list_"+name, []*cel.Type{list, cel.DynType}, cel.IntType, cel.BinaryBinding(func(l, x ref.Val) ref.Val {
			return types.Int(f(elements(l), x))
		})))
	}
	return []cel.EnvOption{
		fold("sum", cel.DynType, sum),
		fold("min", cel.DynType, func(all []ref.Val) ref.Val { return extreme(all, types.IntNegOne) }),
		fold("max", cel.DynType, func(all []ref.Val) ref.Val { return extreme(all, types.IntOne) }),
		fold("isSorted", cel.BoolType, isSorted),
		search("indexOf", func(all []ref.Val, x ref.Val) int {
			for i, e := range all {
				if e.Equal(x) == types.True {
					return i
				}
			}
			return -1
		}),
		search("lastIndexOf", func(all []ref.Val, x ref.Val) int {
			for i, e := range slices.Backward(all) {
				if e.Equal(x) == types.True {
					return i
				}
			}
			return -1
		}),
	}
}

func elements(v ref.Val) []ref.Val {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil
	}
	var out []ref.Val
	for it := list.Iterator(); it.HasNext() == types.True; {
		out = append(out, it.Next())
	}
	return out
}

// sum adds numbers or durations; the sum of nothing is 0.
func sum(all []ref.Val) ref.Val {
	if len(all) == 0 {
		return types.IntZero
	}
	total := all[0]
	for _, v := range all[1:] {
		adder, ok := total.(traits.Adder)
		if !ok {
			return types.MaybeNoSuchOverloadErr(total)
		}
		if total = adder.Add(v); types.IsUnknownOrError(total) {
			return total
		}
	}
	return total
}

// extreme is the largest (1) or smallest (-1) element.
func extreme(all []ref.Val, sign types.Int) ref.Val {
	if len(all) == 0 {
		return types.NewErr("min and max require a list that is not empty")
	}
	best := all[0]
	for _, v := range all[1:] {
		c, ok := v.(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		order := c.Compare(best)
		if types.IsUnknownOrError(order) {
			return order
		}
		if order == sign {
			best = v
		}
	}
	return best
}

func isSorted(all []ref.Val) ref.Val {
	for i := 1; i < len(all); i++ {
		c, ok := all[i-1].(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(all[i-1])
		}
		order := c.Compare(all[i])
		if types.IsUnknownOrError(order) {
			return order
		}
		if order == types.IntOne {
			return types.False
		}
	}
	return types.True
}
