// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chromium drives a headless Chromium through its debugging pipe: two file descriptors, on which Chromium and
// the test exchange JSON. It has only what the tests of the dashboard need, so it is shorter than a library for it.
package chromium

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Browser is a running Chromium with an empty profile.
type Browser struct {
	command *exec.Cmd
	profile string
	pipe    io.WriteCloser
	next    atomic.Int64

	mu      sync.Mutex
	waiting map[int64]chan message
	events  map[string]func(method string, params json.RawMessage)
	ended   error
}

// message is what Chromium and the test exchange.
type message struct {
	ID      int64           `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts Chromium. Close ends it.
func Start() (*Browser, error) {
	profile, err := os.MkdirTemp("", "everynode-chromium-")
	if err != nil {
		return nil, err
	}
	fromTest, toBrowser, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromBrowser, toTest, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{profile: profile, pipe: toBrowser, waiting: map[int64]chan message{}, events: map[string]func(string, json.RawMessage){}}
	b.command = exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	b.command.ExtraFiles = []*os.File{fromTest, toTest}
	b.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its helpers end with it
	err = b.command.Start()
	_, _ = fromTest.Close(), toTest.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting Chromium: %w", err), os.RemoveAll(profile))
	}
	go b.read(fromBrowser)
	return b, nil
}

// Close ends Chromium and all its processes, and removes the profile.
func (b *Browser) Close() error {
	_, _ = b.call("", "Browser.close", nil)
	ended := make(chan struct{})
	go func() { _ = b.command.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
	}
	_ = syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL)
	<-ended
	_ = b.pipe.Close()
	for try := 0; ; try++ { // a process that was killed may still write
		if err := os.RemoveAll(b.profile); err == nil || try == 20 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// read passes on what Chromium writes until it ends.
func (b *Browser) read(from io.ReadCloser) {
	defer func() { _ = from.Close() }()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			b.end(fmt.Errorf("reading from Chromium: %w", err))
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, event := b.waiting[m.ID], b.events[m.Session]
		if m.ID != 0 {
			delete(b.waiting, m.ID)
			event = nil
		}
		b.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m
		case event != nil:
			event(m.Method, m.Params)
		}
	}
}

func (b *Browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = err
	for id, answer := range b.waiting {
		close(answer)
		delete(b.waiting, id)
	}
}

// callTimeout is the time within which Chromium must answer.
const callTimeout = 30 * time.Second

// call sends a command, and returns its result.
func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	m := message{ID: b.next.Add(1), Session: session, Method: method}
	if params != nil {
		encoded, err := json.Marshal(params)
		if err != nil {
			return nil, err
		}
		m.Params = encoded
	}
	encoded, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	err = b.ended
	if err == nil {
		b.waiting[m.ID] = answer
		_, err = b.pipe.Write(append(encoded, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	select {
	case got, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: Chromium has ended", method)
		case got.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, got.Error.Message)
		}
		return got.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: no answer for %s", method, callTimeout)
	}
}

// Tab is a page of the browser.
type Tab struct {
	browser         *Browser
	session, target string

	mu sync.Mutex
	// problems are the errors that the page has written to its console, and requests the addresses that it has requested.
	problems, requests []string
}

// Open opens a page.
func (b *Browser) Open(width, height int, dark bool) (*Tab, error) {
	var created struct {
		TargetID string `json:"targetId"`
	}
	var context struct {
		ID string `json:"browserContextId"`
	}
	if err := b.into(&context, "", "Target.createBrowserContext", nil); err != nil {
		return nil, err
	}
	if err := b.into(&created, "", "Target.createTarget", map[string]any{"url": "about:blank", "width": width, "height": height, "browserContextId": context.ID}); err != nil {
		return nil, err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.into(&attached, "", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}); err != nil {
		return nil, err
	}
	t := &Tab{browser: b, session: attached.SessionID, target: created.TargetID}
	b.mu.Lock()
	b.events[t.session] = t.event
	b.mu.Unlock()
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable"} {
		if _, err := b.call(t.session, domain, nil); err != nil {
			return nil, err
		}
	}
	return t, errors.Join(t.Resize(width, height), t.Dark(dark))
}

func (b *Browser) into(result any, session, method string, params any) error {
	raw, err := b.call(session, method, params)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// event remembers what the tests check.
func (t *Tab) event(method string, params json.RawMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch method {
	case "Runtime.exceptionThrown", "Log.entryAdded":
		t.problems = append(t.problems, string(params))
	case "Network.requestWillBeSent":
		var sent struct {
			Request struct {
				URL string `json:"url"`
			} `json:"request"`
		}
		if json.Unmarshal(params, &sent) == nil {
			t.requests = append(t.requests, sent.Request.URL)
		}
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
func (t *Tab) Close() error {
	_, err := t.browser.call("", "Target.closeTarget", map[string]any{"targetId": t.target})
	return err
}

// Resize sets the size of the page.
func (t *Tab) Resize(width, height int) error {
	_, err := t.browser.call(t.session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
	return err
}

// Dark sets whether the system prefers dark colors.
func (t *Tab) Dark(dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := t.browser.call(t.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	return err
}

// Go opens an address.
func (t *Tab) Go(url string) error {
	var answer struct {
		ErrorText string `json:"errorText"`
	}
	if err := t.browser.into(&answer, t.session, "Page.navigate", map[string]any{"url": url}); err != nil {
		return err
	}
	if answer.ErrorText != "" {
		return fmt.Errorf("opening %s: %s", url, answer.ErrorText)
	}
	return nil
}

// AcceptCertificates makes the tab accept self-signed certificates.
func (t *Tab) AcceptCertificates() error {
	_, err := t.browser.call(t.session, "Security.setIgnoreCertificateErrors", map[string]any{"ignore": true})
	return err
}

// BypassPolicy turns the Content-Security-Policy of the page off, for a tool that the test adds to it.
func (t *Tab) BypassPolicy() error {
	_, err := t.browser.call(t.session, "Page.setBypassCSP", map[string]any{"enabled": true})
	return err
}

// Evaluate evaluates an expression, or waits for the promise that it is, and decodes its value into result unless that is
// nil.
func (t *Tab) Evaluate(expression string, result any) error {
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := t.browser.into(&answer, t.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	switch {
	case err != nil:
		return err
	case answer.Exception != nil:
		return fmt.Errorf("%s: %s %s", expression, answer.Exception.Text, answer.Exception.Exception.Description)
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// keys are the keys that the tests press, with their codes.
var keys = map[string]int{
	"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}

// Press presses a key: one of keys, or one that types a character.
func (t *Tab) Press(key string) error {
	code, special := keys[key]
	down := map[string]any{"type": "keyDown", "key": key}
	switch {
	case key == "Enter":
		down["text"] = "\r"
	case !special || key == " ":
		down["text"] = key
	}
	if special {
		down["windowsVirtualKeyCode"] = code
	}
	up := map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}
	for _, event := range []map[string]any{down, up} {
		if _, err := t.browser.call(t.session, "Input.dispatchKeyEvent", event); err != nil {
			return err
		}
	}
	return nil
}

// Type types a text.
func (t *Tab) Type(text string) error {
	_, err := t.browser.call(t.session, "Input.insertText", map[string]any{"text": text})
	return err
}

// Heap collects garbage, and returns the bytes of the heap of the page that are in use.
func (t *Tab) Heap() (int64, error) {
	if _, err := t.browser.call(t.session, "HeapProfiler.collectGarbage", nil); err != nil {
		return 0, err
	}
	var usage struct {
		Used float64 `json:"usedSize"`
	}
	err := t.browser.into(&usage, t.session, "Runtime.getHeapUsage", nil)
	return int64(usage.Used), err
}

// Screenshot writes a picture of the page to a file.
func (t *Tab) Screenshot(path string) error {
	var picture struct {
		Data string `json:"data"`
	}
	if err := t.browser.into(&picture, t.session, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}); err != nil {
		return err
	}
	content, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
