// Which names a search means: those that hold all its words; else those with its letters in their order;
// else those with a letter or two mistaken.  Each answer is a list of [item, rank], lower ranks first.

function searched(items, text) {
  const words = text.toLowerCase().replace(/\b(aten|at|torch)::?/g, "").split(/\s+/).filter(Boolean);
  if (!words.length) return { found: items.map((item) => [item, 0]), exact: true, words };
  for (const [rank, exact] of [[rankOfWords, true], [rankOfLetters, false], [rankOfMistakes, false]]) {
    const found = [];
    for (const item of items) {
      const value = rank(item.lower, words);
      if (value !== null) found.push([item, value]);
    }
    if (found.length) return { found, exact, words };
  }
  return { found: [], exact: true, words };
}

function rankOfWords(name, words) {
  let rank = 0;
  for (const word of words) {
    const at = name.indexOf(word);
    if (at < 0) return null;
    if (name === word) rank -= 4;
    else if (at === 0) rank += /[a-z0-9]/.test(name[word.length] ?? ".") ? 1 : 0;
    else rank += /[a-z0-9]/.test(name[at - 1]) ? 3 : 2;
  }
  return rank * 100 + name.length;
}

function rankOfLetters(name, words) {
  const letters = words.join("");
  if (letters.length < 3) return null;
  let at = -1;
  let gaps = 0;
  for (const letter of letters) {
    const next = name.indexOf(letter, at + 1);
    if (next < 0) return null;
    if (at >= 0) gaps += next - at - 1;
    at = next;
  }
  // Letters strewn over a long name are a coincidence.
  return gaps > letters.length ? null : gaps * 100 + name.length;
}

// Sellers: the fewest edits that turn the word into some part of the name.
function rankOfMistakes(name, words) {
  const word = words.join("_");
  const allowed = word.length < 4 ? 0 : word.length < 7 ? 1 : 2;
  if (!allowed) return null;
  let row = new Array(name.length + 1).fill(0);
  for (let i = 1; i <= word.length; i++) {
    const next = [i];
    for (let j = 1; j <= name.length; j++) {
      next[j] = Math.min(
        row[j] + 1, next[j - 1] + 1, row[j - 1] + (word[i - 1] === name[j - 1] ? 0 : 1));
    }
    row = next;
  }
  const edits = Math.min(...row);
  return edits > allowed ? null : edits * 100 + name.length;
}
