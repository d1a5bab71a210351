// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
)

const (
	// mostMemory and mostTime are the memory and the time that a check may use, whatever its author and the objects have chosen.
	mostMemory = 64 << 20
	mostTime   = time.Second
)

// nested repeats the parts of an expression around its middle.
func nested(n int, before, middle, after string) string {
	return strings.Repeat(before, n) + middle + strings.Repeat(after, n)
}

// sized returns the largest object that is evaluated, with as many parts as fit between two texts.
func sized(before, part, after string) string {
	n := (maxObject - len(before) - len(after)) / len(part)
	return before + strings.TrimSuffix(strings.Repeat(part, n), ",") + after
}

func bombs() map[string]struct{ cel, object string } {
	text := sized(`{"s": "`, "x", `", "l": [1, 2]}`)
	list := sized(`{"s": "x", "l": [`, `1,`, `]}`)
	maps := sized(`{"l": [`, `{"a":""},`, `]}`)
	half := sized(`{"s": "`, "x", `"}`)[:maxObject/2] + sized(`", "l": [`, `1,`, `]}`)[:maxObject/2-2] + "]}"
	return map[string]struct{ cel, object string }{
		"replace":                           {nested(7, "", "'x'", ".replace('','xxxxxxxxxxxxxxxxxxxxxxx')") + ".size() > 0", text},
		"join":                              {"['a', 'b'].join(object.s).size() > 0", text},
		"format":                            {"'%s%s%s%s'.format([object.s, object.s, object.s]).size() > 0", text},
		"split":                             {"object.s.split('').size() > 0", text},
		"a regular expression":              {"object.s.matches('" + nested(100, "(", "x", "+)+") + "$')", text},
		"a regular expression that repeats": {"object.s.matches('((((x{10}){10}){10}){10})')", text},
		"sums of texts":                     {strings.Repeat("object.s + ", 20) + "object.s == ''", text},
		"sums of bytes":                     {strings.Repeat("bytes(object.s) + ", 20) + "b'' == b''", text},
		"sums of lists":                     {strings.Repeat("object.l + ", 20) + "object.l == []", list},
		"doubled texts":                     {nested(1, "['x']", strings.Repeat(".map(x, x + x)", 14), "") + ".size() == 1", text},
		"doubled lists":                     {"[[1]]" + strings.Repeat(".map(x, x + x)", 14) + ".all(x, x == x)", text},
		"doubled literals":                  {"[object]" + strings.Repeat(".map(x, [x, x])", 14) + ".all(x, x == x)", text},
		"doubled literals by exists":        {"[object].exists(x, " + nested(14, "[[x, x]].exists(x, ", "x == x", ")") + ")", maps},
		"doubled maps by exists": {
			"[object].exists(x, " + nested(14, "[{'a': x, 'b': x}].exists(x, ", "x == x", ")") + ")",
			maps,
		},
		"doubled values by optMap":   {"optional.of(object)" + strings.Repeat(".optMap(x, [x, x])", 14) + ".hasValue()", text},
		"doubled texts by optMap":    {"optional.of(object.s)" + strings.Repeat(".optMap(x, x + x)", 14) + ".value() == ''", text},
		"filters of filters":         {"object.l" + strings.Repeat(".filter(x, true)", 14) + ".size() > 0", list},
		"filters in filters":         {nested(10, "object.l.filter(x, ", "true", ").size() > 0"), list},
		"loops in loops":             {nested(20, "object.l.all(x, ", "true", ")"), list},
		"loops about all texts":      {"object.l.all(x, object.s.size() > 0 && object.s.contains('y') == false)", half},
		"conversions in a loop":      {"object.l.all(x, timestamp(object.s) != timestamp(object.s) || true)", half},
		"conversions to bytes":       {"object.l.all(x, bytes(object.s).size() > 0)", half},
		"numbers in a loop":          {"object.l.all(x, int(object.s) != 0 || true)", half},
		"comparisons of the object":  {strings.Repeat("object == object && ", 45) + "true", list},
		"comparisons in a loop":      {"object.l.all(x, object == object)", maps},
		"elements of lists":          {"object.l.all(x, x in object.l)", maps},
		"optional comparisons":       {"object.l.all(x, optional.of(object) == optional.of(object))", maps},
		"comparisons with others":    {"object.l.all(x, object != 'x')", maps},
		"nested lists":               {nested(240, "[", "1", "]") + " == []", text},
		"parentheses":                {nested(500, "(", "true", ")"), text},
		"negations":                  {nested(1000, "!", "true", ""), text},
		"a huge text":                {"'" + strings.Repeat("x", 1000) + "' == object.s", text},
		"a huge list":                {"object.l.all(x, x in [" + strings.Repeat("1,", 490) + "1])", list},
		"many terms":                 {strings.Repeat("1+", 500) + "1 == 501", text},
		"many conditions":            {strings.Repeat("true?true:", 90) + "true", text},
		"conditions without an end":  {strings.Repeat("true?", 204), text},
		"conditions in conditions":   {strings.Repeat("true?(", 100) + "true" + strings.Repeat("):true", 60), text},
		"texts without an end":       {nested(500, "'", "", ""), text},
		"open lists":                 {nested(1000, "[", "", ""), text},
		"open maps":                  {nested(300, "{1:", "", ""), text},
		"maps in maps":               {nested(200, "{1:", "1", "}") + " == {}", text},
		"large numbers":              {"object.l.all(x, 9223372036854775807 * 9223372036854775807 == 0)", list},
		"an object of empty lists":   {"object == object", sized(`{"l":[`, `[],`, `]}`)},
		"an object of empty maps":    {"object == object", sized(`{"l":[`, `{},`, `]}`)},
		"an object that is deep":     {"object == object", `{"a":` + nested(9000, "[", "", "]") + "}"},
		"an object that is too deep": {"object == object", `{"a":` + nested(maxObject/3, "[", "", "]") + "}"},
		"an object of numbers":       {"object.l.all(x, x == x)", list},
		"an object with escapes":     {"object.s == ''", sized(`{"s":"`, `\u0001`, `"}`)},
	}
}

// TestBombs : expressions and objects that would need more and more memory or time.
func TestBombs(t *testing.T) {
	server := &kubernetes{}
	c := newChecker(t, nil, claims.New(), time.Now, server.ServeHTTP)
	_ = answer(t, c, *bomb("true", server, "{}")) // prepares CEL
	for name, tt := range bombs() {
		t.Run(name, func(t *testing.T) {
			if len(tt.cel) > 1024 || len(tt.object) > maxObject {
				t.Fatalf("the API server or the manager rejects this before it is evaluated: %d, %d bytes", len(tt.cel), len(tt.object))
			}
			r := bomb(tt.cel, server, tt.object)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := processorTime(t)
			got := answer(t, c, *r)
			took := processorTime(t) - began
			runtime.ReadMemStats(&after)
			used := after.TotalAlloc - before.TotalAlloc
			t.Logf("%.1f MiB, %s: %.150s", float64(used)/(1<<20), took.Round(time.Millisecond), got)
			if used > mostMemory || took > mostTime {
				t.Errorf("it uses %d MiB and %s: %s", used>>20, took, got)
			}
			if strings.Contains(got, "xxxxxxxxxxxxxxxxxxxxxxxxx") && !strings.Contains(tt.cel, "xxxxxxxxxxxxxxxxxxxx") {
				t.Errorf("a value of the object is in %q", got)
			}
		})
	}
}

// processorTime is what the process has used, so that a busy machine makes no difference.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func bomb(expression string, server *kubernetes, object string) *v1alpha1.BudgetRequirement {
	server.object = object
	return &v1alpha1.BudgetRequirement{Name: "bomb", Object: &v1alpha1.RequiredObject{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "x", Expression: expression,
	}}
}

// TestBombsOfManyBudgets : 8 expensive expressions in each of 16 budgets share one limit of memory, and all of them get an answer.
func TestBombsOfManyBudgets(t *testing.T) {
	server := &kubernetes{}
	all := bombs()
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	c := newChecker(t, nil, claims.New(), time.Now, func(w http.ResponseWriter, r *http.Request) {
		(&kubernetes{object: all[strings.ReplaceAll(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "_", " ")].object}).ServeHTTP(w, r)
	})
	done := make(chan struct{})
	var most uint64
	var measured sync.WaitGroup
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	measured.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
		}
	})
	began := time.Now()
	var budgets sync.WaitGroup
	for i := range parallelBudgets {
		b := &v1alpha1.NodeDisruptionBudget{}
		b.Name, b.UID = fmt.Sprint("b", i), "u"
		for j := range 8 {
			name := names[(8*i+j)%len(names)]
			r := bomb(all[name].cel, server, "")
			r.Object.Name = strings.ReplaceAll(name, " ", "_")
			b.Spec.Requirements = append(b.Spec.Requirements, *r)
		}
		budgets.Go(func() {
			for j, a := range c.check(t.Context(), b).Of {
				if a.State == "" {
					t.Errorf("no answer to %s", b.Spec.Requirements[j].Object.Expression)
				}
			}
		})
	}
	budgets.Wait()
	took := time.Since(began)
	close(done)
	measured.Wait()
	t.Logf("%s, at most %d MiB", took, (most-before.HeapAlloc)>>20)
	if took > time.Minute || most-before.HeapAlloc > 2*mostMemory {
		t.Errorf("they use %s and %d MiB", took, (most-before.HeapAlloc)>>20)
	}
}

// TestTheFunctionsOfExpressions : a new version of CEL adds no function without notice. None of these makes a text, a list or a map
// that is larger than what it is called with, except keep, which adds an element of a list of the object.
func TestTheFunctionsOfExpressions(t *testing.T) {
	env, err := celEnv()
	if err != nil {
		t.Fatal(err)
	}
	var functions, macros []string
	for name := range env.Functions() {
		functions = append(functions, name)
	}
	for _, macro := range env.Macros() {
		macros = append(macros, macro.Function())
	}
	slices.Sort(functions)
	slices.Sort(macros)
	const wantFunctions = "!_ -_ @in @keep @not_strictly_false _!=_ _%_ _&&_ _*_ _+_ _-_ _/_ _<=_ _<_ _==_ _>=_ _>_ _?._ _?_:_ _[?_] _[_] " +
		"__not_strictly_false__ _in_ _||_ bool contains double duration dyn endsWith getDate getDayOfMonth getDayOfWeek getDayOfYear " +
		"getFullYear getHours getMilliseconds getMinutes getMonth getSeconds hasValue in int optional.none optional.of " +
		"optional.ofNonZeroValue or orValue size startsWith string timestamp type uint value"
	if got := strings.Join(functions, " "); got != wantFunctions {
		t.Errorf("the functions are\n%s, want\n%s", got, wantFunctions)
	}
	if got := strings.Join(macros, " "); got != "all exists exists_one filter has" {
		t.Errorf("the macros are %s", got)
	}
}
