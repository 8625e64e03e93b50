// The search runs in a worker, and browsers start none for a page from a disk.
// There its script runs in a hidden frame instead. The name of this file keeps
// the theme's offline plugin from loading such a script from a CDN.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!DOCTYPE html>";
      this.started = new Promise((resolve) => {
        frame.onload = () => {
          const scope = frame.contentWindow;
          scope.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }));
          const script = scope.document.createElement("script");
          script.src = new URL(url, location.href).href;
          script.onload = () => resolve(scope);
          scope.document.body.append(script);
        };
      });
      document.documentElement.append(frame);
    }

    postMessage(data) {
      this.started.then((scope) =>
        scope.dispatchEvent(new scope.MessageEvent("message", { data })));
    }
  };
}
