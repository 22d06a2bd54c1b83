"""Multinomial naive Bayes on words and pairs of neighbouring words, with add-one smoothing.

A text t of class c has log p(c, t) = log(N_c / N) + sum over its features f of log((n_fc + 1) / (n_c + V)): N_c of the N
training texts have the class c, n_fc is the number of occurrences of f in them, n_c their sum over f, and V the number
of different features in the training texts. Features that no training text has are left out. This is MultinomialNB of
scikit-learn with alpha=1 on the counts of CountVectorizer(ngram_range=(1, 2)) of words between white space.
"""
import math
from collections import Counter


def features(text):
    words = text.split()
    return Counter([*words, *zip(words, words[1:])])


class NaiveBayes:
    def __init__(self, texts, labels, classes):
        counts = [Counter() for _ in range(classes)]
        for text, label in zip(texts, labels):
            counts[label].update(features(text))
        self.vocabulary = set().union(*counts)
        self._priors = [math.log(labels.count(label) / len(labels)) for label in range(classes)]
        totals = [sum(count.values()) + len(self.vocabulary) for count in counts]
        self._log_probs = [{f: math.log((count[f] + 1) / total) for f in self.vocabulary}
                           for count, total in zip(counts, totals)]

    def scores(self, text):
        """log p(c, text) of each class c."""
        present = [(f, n) for f, n in features(text).items() if f in self.vocabulary]
        return [prior + math.fsum(n * log_probs[f] for f, n in present)
                for prior, log_probs in zip(self._priors, self._log_probs)]

    def predict(self, text):
        """The most likely class; of equally likely ones the first."""
        scores = self.scores(text)
        return scores.index(max(scores))
