// Asks for name and password once; the server answers with a session's cookie.
const value = (id) => document.getElementById(id).value;

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name: value("name"), password: value("password") }),
  });
  if (answer.ok) {
    location.href = "/";
    return;
  }
  const problem = document.getElementById("problem");
  problem.textContent = (await answer.json()).error;
  problem.hidden = false;
});
