// Asks for the token once; the server answers with a session's cookie.
document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) {
    location.href = "/";
    return;
  }
  const problem = document.getElementById("problem");
  problem.textContent = (await answer.json()).error;
  problem.hidden = false;
});
