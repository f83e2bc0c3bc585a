// A session is a cookie that this script cannot read; all it learns is whether there is one.
"use strict";

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  const said = document.getElementById("link");
  try {
    const answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(given),
    });
    if (answer.ok) location.href = "/console/";
    else said.textContent = (await answer.json()).detail;
  } catch {
    said.textContent = "the server does not answer";
  }
});
