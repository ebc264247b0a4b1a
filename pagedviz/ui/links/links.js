// Anchors with a real address, so that they can be copied or opened in a tab; a plain click stays within the page.
const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
};

const anchor = (link, follow) => {
  const made = element("a", "", "");
  made.href = link.place ? `/?${link.place}` : "/";
  made.append(element("span", "label", link.label));
  if (link.note) made.append(element("span", "note", link.note));
  if (link.current) made.setAttribute("aria-current", "page");
  made.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    follow(link.place);
  });
  return made;
};

const menu = (name, links, follow) => {
  const made = element("details", "menu", "");
  const summary = element("summary", "", name);
  if (links.some((link) => link.current)) summary.classList.add("current");
  const list = element("div", "items", "");
  list.append(...links.map((link) => anchor(link, follow)));
  made.append(summary, list);
  const shut = () => { made.open = false; };
  made.addEventListener("focusout", (event) => { if (!made.contains(event.relatedTarget)) shut(); });
  made.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && made.open) { shut(); summary.focus(); }
  });
  return made;
};

export default ({ data, parentElement, setTriggerValue }) => {
  const follow = (place) => setTriggerValue("followed", place);
  const shown = JSON.stringify(data);
  const old = parentElement.querySelector("nav");
  if (old?.shown === shown) return;
  const nav = element("nav", data.look, "");
  nav.shown = shown;
  nav.setAttribute("aria-label", data.label);
  const menus = new Set();
  for (const link of data.links) {
    if (!link.menu) nav.append(anchor(link, follow));
    else if (!menus.has(link.menu)) {
      menus.add(link.menu);
      nav.append(menu(link.menu, data.links.filter((other) => other.menu === link.menu), follow));
    }
  }
  if (data.end) nav.append(element("span", "end", data.end));
  if (old) old.replaceWith(nav); else parentElement.append(nav);
};
