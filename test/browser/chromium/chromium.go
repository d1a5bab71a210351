// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chromium shows pages in a headless Chromium, with chromedp. It has what the tests of the dashboard need.
package chromium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Browser is a running Chromium with an empty profile.
type Browser struct {
	ctx context.Context //nolint:containedctx // chromedp's browser is its context
	end context.CancelFunc
}

// Start starts Chromium. Close ends it.
func Start() (*Browser, error) {
	allocator, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("force-device-scale-factor", "1"), chromedp.Flag("hide-scrollbars", true))...)
	ctx, _ := chromedp.NewContext(allocator) // ends with the allocator
	if err := chromedp.Do(ctx); err != nil {
		end()
		return nil, fmt.Errorf("starting Chromium: %w", err)
	}
	return &Browser{ctx, end}, nil
}

// Close ends Chromium and all its processes, and removes the profile.
func (b *Browser) Close() error {
	defer b.end()
	return chromedp.Cancel(b.ctx)
}

// Tab is a page of the browser, with cookies of its own.
type Tab struct {
	ctx context.Context //nolint:containedctx // chromedp's page is its context

	mu sync.Mutex
	// problems are the errors that the page has written to its console, and requests the addresses that it has requested.
	problems, requests []string
}

// Open opens a page.
func (b *Browser) Open(width, height int, dark bool) (*Tab, error) {
	t := &Tab{}
	t.ctx, _ = chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.event)) // Close ends it
	// The tab ends with the context of the first call, so that has no deadline.
	return t, errors.Join(chromedp.Do(t.ctx), t.Resize(width, height), t.Dark(dark))
}

// callTimeout is the time within which Chromium must answer.
const callTimeout = 30 * time.Second

// run executes an action in the page.
func run[T any](t *Tab, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// call sends a command to the page, and returns its result.
func call[P, R any](t *Tab, command cdp.Command[P, R], params P) (R, error) {
	return run(t, func(ctx context.Context, target *chromedp.Target) (R, error) {
		return cdp.Call(ctx, target, command, params)
	})
}

// event remembers what the tests check.
func (t *Tab) event(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		t.problems = append(t.problems, (&chromedp.ExceptionError{ExceptionDetails: event.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		t.problems = append(t.problems, event.Entry.Text+" "+event.Entry.URL)
	case *network.EventRequestWillBeSent:
		t.requests = append(t.requests, event.Request.URL)
	}
}

// Problems returns the errors of the page.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.problems...)
}

// Requests returns the addresses that the page has requested.
func (t *Tab) Requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.requests...)
}

// Close closes the page.
func (t *Tab) Close() error { return chromedp.Cancel(t.ctx) }

// Resize sets the size of the page.
func (t *Tab) Resize(width, height int) error {
	_, err := run(t, chromedp.EmulateViewport(int64(width), int64(height)))
	return err
}

// Dark sets whether the system prefers dark colors.
func (t *Tab) Dark(dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	_, err := call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	return err
}

// Go opens an address. It does not wait for the page.
func (t *Tab) Go(url string) error {
	answer, err := call(t, page.Navigate, page.NavigateParams{URL: url})
	if answer.ErrorText != "" {
		return fmt.Errorf("opening %s: %s", url, answer.ErrorText)
	}
	return err
}

// BypassPolicy turns the Content-Security-Policy of the page off, for a tool that the test adds to it.
func (t *Tab) BypassPolicy() error {
	_, err := call(t, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
	return err
}

// Evaluate evaluates an expression, or waits for the promise that it is, and decodes its value into result unless that is
// nil.
func (t *Tab) Evaluate(expression string, result any) error {
	answer, err := call(t, runtime.Evaluate, runtime.EvaluateParams{Expression: expression, ReturnByValue: new(true), AwaitPromise: new(true)})
	switch {
	case err != nil:
		return err
	case answer.ExceptionDetails != nil:
		return fmt.Errorf("%s: %w", expression, &chromedp.ExceptionError{ExceptionDetails: answer.ExceptionDetails})
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// keys are the keys that the tests press and that type no character.
var keys = map[string]string{
	"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape, "End": kb.End, "Home": kb.Home,
	"ArrowLeft": kb.ArrowLeft, "ArrowUp": kb.ArrowUp, "ArrowRight": kb.ArrowRight, "ArrowDown": kb.ArrowDown,
}

// Press presses a key: one of keys, or one that types a character.
func (t *Tab) Press(key string) error {
	if special, is := keys[key]; is {
		key = special
	}
	_, err := run(t, chromedp.KeyEvent(key))
	return err
}

// Type types a text.
func (t *Tab) Type(text string) error {
	_, err := call(t, input.InsertText, input.InsertTextParams{Text: text})
	return err
}

// Heap collects garbage, and returns the bytes of the heap of the page that are in use.
func (t *Tab) Heap() (int64, error) {
	if _, err := call(t, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		return 0, err
	}
	usage, err := call(t, runtime.GetHeapUsage, cdp.Empty{})
	return int64(usage.UsedSize), err
}

// Screenshot writes a picture of the page to a file.
func (t *Tab) Screenshot(path string) error {
	picture, err := run(t, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o600)
}
